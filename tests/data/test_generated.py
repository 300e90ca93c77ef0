"""The generated tasks: right by CLDR, a function of the source, the same everywhere, disjoint by split."""

import subprocess
import sys
from datetime import date, datetime
from hashlib import blake2b
from itertools import pairwise

import pytest
from babel import Locale
from babel.dates import format_date

from saccade.data.sources.generated import FIRST_DAY, SPLITS, Copy, Dates, Reverse, Sort, usable_formats, written
from saccade.data.sources import load
from saccade.data.sources.rows import Pair
from saccade.errors import DataError

LANGUAGES = [("en", "de"), ("en", "fr"), ("fr", "de"), ("ja", "en"), ("th", "ru")]


def texts(source: Dates | Copy | Reverse | Sort) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in source.rows()]


def digest(source: Dates | Copy | Reverse | Sort) -> str:
    return blake2b(repr(texts(source)).encode(), digest_size=8).hexdigest()


def test_the_example_is_right():
    day = date(2031, 3, 4)
    english, german = (
        [written(day, style, Locale.parse(name)) for style in ("full", "long", "medium", "short")]
        for name in ("en", "de")
    )
    assert english == ["Tuesday, March 4, 2031", "March 4, 2031", "Mar 4, 2031", "3/4/31"]
    assert german == ["Dienstag, 4. März 2031", "4. März 2031", "04.03.2031", "04.03.31"]


def test_every_full_date_is_translated_rightly():
    rows = [pair for pair in texts(Dates(rows=1000)) if pair[0].split(",")[0].endswith("day")]
    assert len(rows) > 200
    for english, german in rows:
        day = datetime.strptime(english, "%A, %B %d, %Y")
        assert german == format_date(day, "full", locale="de")


@pytest.mark.parametrize(("source", "target"), LANGUAGES)
def test_date_splits_are_disjoint_functions(source: str, target: str):
    by_split = {split: texts(Dates(from_=source, to=target, rows=3000, split=split)) for split in SPLITS}
    every = [pair for pairs in by_split.values() for pair in pairs]
    assert len({text for text, _ in every}) == len(every) == 9000


def test_dates_are_disjoint_even_with_different_seeds():
    train = set(texts(Dates(rows=9_000, seed=1)))
    assert not train & set(texts(Dates(rows=5_000, split="test", seed=2)))
    assert train != set(texts(Dates(rows=9_000, seed=2)))


def test_a_century_that_only_the_target_keeps_drops_the_format():
    english, german, french = (Locale.parse(name) for name in ("en", "de", "fr"))
    assert list(usable_formats(english, german)) == ["full", "long", "medium", "short"]
    assert list(usable_formats(english, french)) == ["full", "long", "medium"]
    assert usable_formats(french, english)["short"] == FIRST_DAY
    assert usable_formats(english, german)["short"] == date(2000, 1, 1)


def test_one_text_of_two_formats_keeps_one_meaning():
    rows = texts(Dates(rows=12_000))
    may = [pair for pair in rows if pair[0].startswith("May ")]
    assert len(may) > 200
    assert all(" Mai " in target for _, target in may)
    assert any(target.startswith("0") for _, target in rows)


def test_more_dates_than_exist():
    with pytest.raises(DataError) as caught:
        list(Dates(split="dev", rows=13_000).rows())
    most = int(str(caught.value).split("at most ")[1].split(" rows")[0].replace(",", ""))
    assert len(list(Dates(split="dev", rows=most).rows())) == most
    with pytest.raises(DataError, match=f"at most {most:,} rows"):
        list(Dates(split="dev", rows=most + 1).rows())


@pytest.mark.parametrize(
    ("name", "near"), [("gerrman", "'de'"), ("en_UX", "'en_"), ("e!", "'"), ("", "'en'"), ("no such", "'")]
)
def test_unknown_locale_names_the_option_and_the_nearest(name: str, near: str):
    with pytest.raises(DataError, match=f"^to: unknown locale '{name}'; .*{near}"):
        Dates(to=name)
    with pytest.raises(DataError, match=r"^from: unknown locale"):
        Dates(from_=name)


def test_locale_with_a_region_is_read_with_either_mark():
    british = texts(Dates(from_="en-GB", to="pt_BR", rows=20))
    assert british == texts(Dates(from_="en_GB", to="pt-BR", rows=20))
    assert british != texts(Dates(from_="en", to="pt_BR", rows=20))


@pytest.mark.parametrize("made", [Copy, Reverse, Sort, Dates])
def test_rows_follow_from_the_options_alone(made: type):
    assert digest(made(rows=300)) == digest(made(rows=300))
    assert digest(made(rows=300)) != digest(made(rows=300, seed=2))
    assert load(made(rows=7), skip_bad=False).faults == 0
    assert made().files() == {}


def test_rows_are_the_same_in_another_process_with_another_hash_seed():
    code = (
        "from saccade.data.sources.generated import Dates, Sort\n"
        "print([[(p.source, p.target) for p in made(rows=50).rows()] for made in (Dates, Sort)])"
    )
    command = [sys.executable, "-c", code]
    paths = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7", "PYTHONUTF8": "1"}
    seen = subprocess.run(command, env=paths, capture_output=True, text=True, check=True, encoding="utf-8")
    assert seen.stdout.strip() == str([texts(Dates(rows=50)), texts(Sort(rows=50))])


def test_golden_rows():
    # a change here changes what published recipes train on
    assert digest(Sort(rows=500)) == "4bf48cec6d34aa88"
    assert texts(Dates(rows=3)) == [
        ("Saturday, August 4, 1979", "Samstag, 4. August 1979"),
        ("Friday, September 17, 2060", "Freitag, 17. September 2060"),
        ("1/21/68", "21.01.68"),
    ]


def test_copy():
    assert all(source == target for source, target in texts(Copy(rows=200)))


def test_reverse():
    assert all(source.split() == target.split()[::-1] for source, target in texts(Reverse(rows=200)))
    assert any(source != target for source, target in texts(Reverse(rows=200)))


def test_sort():
    assert all(sorted(source.split()) == target.split() for source, target in texts(Sort(rows=200)))
    assert any(source != target for source, target in texts(Sort(rows=200)))


def test_sort_puts_two_letters_after_one():
    rows = texts(Sort(rows=500, symbols=28))
    order = {**{chr(97 + n): n for n in range(26)}, "aa": 26, "ab": 27}
    numbers = [[order[symbol] for symbol in target.split()] for _, target in rows]
    assert all(left <= right for row in numbers for left, right in pairwise(row))
    assert {number for row in numbers for number in row} == set(range(28))


def test_lengths_and_symbols_are_as_asked():
    rows = texts(Copy(rows=400, shortest=3, longest=5, symbols=4))
    assert {len(source.split()) for source, _ in rows} == {3, 4, 5}
    assert {symbol for source, _ in rows for symbol in source.split()} == set("abcd")


def test_sequence_splits_are_disjoint_and_without_repeats():
    by_split = {split: texts(Reverse(rows=600, split=split, seed=len(split))) for split in SPLITS}
    sources = [source for pairs in by_split.values() for source, _ in pairs]
    assert len(set(sources)) == len(sources) == 1800


def test_small_space_can_be_used_up_but_not_exceeded():
    with pytest.raises(DataError, match=r"rows: split 'dev' of 'sort' has at most \d+ different rows") as caught:
        list(Sort(symbols=2, longest=10, split="dev", rows=10**9).rows())
    most = int(str(caught.value).split("at most ")[1].split()[0])
    rows = texts(Sort(symbols=2, longest=10, split="dev", rows=most))
    assert len(set(rows)) == most


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows: must be at least 1, got 0"),
        ({"shortest": 0}, "shortest: must be at least 1, got 0"),
        ({"shortest": 5, "longest": 4}, "longest: must be at least 5, got 4"),
        ({"symbols": 0}, "symbols: must be at least 1, got 0"),
        ({"split": "valid"}, "split: unknown split 'valid'; it is one of train, dev, test"),
    ],
)
def test_impossible_options(options: dict, message: str):
    with pytest.raises(DataError) as caught:
        Copy(**options)
    assert str(caught.value) == message


def test_places_name_the_task_the_split_and_the_row():
    first = next(Dates(split="test", rows=3).rows())
    assert isinstance(first, Pair)
    assert first.location == "dates.test:1"
    assert [pair.location for pair in Copy(rows=2).rows()] == ["copy.train:1", "copy.train:2"]
