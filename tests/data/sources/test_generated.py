"""Generated data: correct by CLDR, a function of the source text, reproducible, with disjoint splits."""

import subprocess
import sys
from datetime import date, datetime
from hashlib import blake2b
from itertools import pairwise

import pytest
from babel import Locale
from babel.dates import format_date

from saccade.data.sources import load_rows
from saccade.data.sources.generated import FIRST_DAY, SPLITS, Copy, Dates, Reverse, Sort, format_day, usable_formats
from saccade.data.sources.rows import Pair
from saccade.errors import DataError

LANGUAGES = [("en", "de"), ("en", "fr"), ("fr", "de"), ("ja", "en"), ("th", "ru")]


def texts(source: Dates | Copy | Reverse | Sort) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in source.rows()]


def digest(source: Dates | Copy | Reverse | Sort) -> str:
    return blake2b(repr(texts(source)).encode(), digest_size=8).hexdigest()


def test_formats_of_the_documented_example():
    day = date(2031, 3, 4)
    english, german = (
        [format_day(day, style, Locale.parse(name)) for style in ("full", "long", "medium", "short")]
        for name in ("en", "de")
    )
    assert english == ["Tuesday, March 4, 2031", "March 4, 2031", "Mar 4, 2031", "3/4/31"]
    assert german == ["Dienstag, 4. März 2031", "4. März 2031", "04.03.2031", "04.03.31"]


def test_full_dates_are_translated_correctly():
    rows = [pair for pair in texts(Dates(rows=1000)) if pair[0].split(",")[0].endswith("day")]
    assert len(rows) > 200
    for english, german in rows:
        day = datetime.strptime(english, "%A, %B %d, %Y")
        assert german == format_date(day, "full", locale="de")


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), LANGUAGES)
def test_date_splits_are_disjoint_and_sources_are_unique(source: str, target: str):
    by_split = {split: texts(Dates(from_=source, to=target, rows=3000, split=split)) for split in SPLITS}
    every = [pair for pairs in by_split.values() for pair in pairs]
    assert len({text for text, _ in every}) == len(every) == 9000


@pytest.mark.slow
def test_date_splits_are_disjoint_with_different_seeds():
    train = set(texts(Dates(rows=9_000, seed=1)))
    assert not train & set(texts(Dates(rows=5_000, split="test", seed=2)))
    assert train != set(texts(Dates(rows=9_000, seed=2)))


def test_format_is_left_out_if_only_the_target_has_the_century():
    english, german, french = (Locale.parse(name) for name in ("en", "de", "fr"))
    assert list(usable_formats(english, german)) == ["full", "long", "medium", "short"]
    assert list(usable_formats(english, french)) == ["full", "long", "medium"]
    assert usable_formats(french, english)["short"] == FIRST_DAY
    assert usable_formats(english, german)["short"] == date(2000, 1, 1)


def test_text_that_two_formats_share_has_one_target():
    rows = texts(Dates(rows=12_000))
    may = [pair for pair in rows if pair[0].startswith("May ")]
    assert len(may) > 200
    assert all(" Mai " in target for _, target in may)
    assert any(target.startswith("0") for _, target in rows)


def test_too_many_dates_are_an_error_with_the_maximum():
    with pytest.raises(DataError) as caught:
        list(Dates(split="dev", rows=13_000).rows())
    maximum = int(str(caught.value).split("at most ")[1].split(" rows")[0].replace(",", ""))
    assert len(list(Dates(split="dev", rows=maximum).rows())) == maximum
    with pytest.raises(DataError, match=f"at most {maximum:,} rows"):
        list(Dates(split="dev", rows=maximum + 1).rows())


@pytest.mark.parametrize(
    ("name", "similar"), [("gerrman", "'de'"), ("en_UX", "'en_"), ("e!", "'"), ("", "'en'"), ("no such", "'")]
)
def test_unknown_locale_error_names_the_option_and_similar_locales(name: str, similar: str):
    with pytest.raises(DataError, match=f"^to: unknown locale '{name}'; .*{similar}"):
        Dates(to=name)
    with pytest.raises(DataError, match=r"^from: unknown locale"):
        Dates(from_=name)


@pytest.mark.slow
def test_region_of_a_locale_may_follow_a_hyphen_or_an_underscore():
    british = texts(Dates(from_="en-GB", to="pt_BR", rows=20))
    assert british == texts(Dates(from_="en_GB", to="pt-BR", rows=20))
    assert british != texts(Dates(from_="en", to="pt_BR", rows=20))


@pytest.mark.slow
@pytest.mark.parametrize("source", [Copy, Reverse, Sort, Dates])
def test_rows_are_a_function_of_the_options(source: type):
    assert digest(source(rows=300)) == digest(source(rows=300))
    assert digest(source(rows=300)) != digest(source(rows=300, seed=2))
    assert load_rows(source(rows=7), skip_bad=False).bad_rows == 0
    assert source().files() == {}


@pytest.mark.slow
def test_rows_do_not_depend_on_the_python_hash_seed():
    code = (
        "from saccade.data.sources.generated import Dates, Sort\n"
        "print([[(p.source, p.target) for p in source(rows=50).rows()] for source in (Dates, Sort)])"
    )
    command = [sys.executable, "-c", code]
    paths = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7", "PYTHONUTF8": "1"}
    completed = subprocess.run(command, env=paths, capture_output=True, text=True, check=True, encoding="utf-8")
    assert completed.stdout.strip() == str([texts(Dates(rows=50)), texts(Sort(rows=50))])


def test_rows_do_not_change():
    # another value here would change the training data of published recipes
    assert digest(Sort(rows=500)) == "4bf48cec6d34aa88"
    assert texts(Dates(rows=3)) == [
        ("Saturday, August 4, 1979", "Samstag, 4. August 1979"),
        ("Friday, September 17, 2060", "Freitag, 17. September 2060"),
        ("1/21/68", "21.01.68"),
    ]


def test_copy_target_is_the_source():
    assert all(source == target for source, target in texts(Copy(rows=200)))


def test_reverse_target_is_the_reversed_source():
    assert all(source.split() == target.split()[::-1] for source, target in texts(Reverse(rows=200)))
    assert any(source != target for source, target in texts(Reverse(rows=200)))


def test_sort_target_is_the_sorted_source():
    assert all(sorted(source.split()) == target.split() for source, target in texts(Sort(rows=200)))
    assert any(source != target for source, target in texts(Sort(rows=200)))


def test_sort_orders_two_letter_symbols_after_single_letters():
    rows = texts(Sort(rows=500, symbols=28))
    order = {**{chr(97 + n): n for n in range(26)}, "aa": 26, "ab": 27}
    numbers = [[order[symbol] for symbol in target.split()] for _, target in rows]
    assert all(left <= right for row in numbers for left, right in pairwise(row))
    assert {number for row in numbers for number in row} == set(range(28))


def test_lengths_and_symbols_match_the_options():
    rows = texts(Copy(rows=400, shortest=3, longest=5, symbols=4))
    assert {len(source.split()) for source, _ in rows} == {3, 4, 5}
    assert {symbol for source, _ in rows for symbol in source.split()} == set("abcd")


def test_sequence_splits_are_disjoint_and_have_no_duplicates():
    by_split = {split: texts(Reverse(rows=600, split=split, seed=len(split))) for split in SPLITS}
    sources = [source for pairs in by_split.values() for source, _ in pairs]
    assert len(set(sources)) == len(sources) == 1800


@pytest.mark.parametrize("source", [Dates("data.dev", rows=10**6), Sort("data.dev", symbols=2, rows=10**6)])
def test_error_about_too_many_rows_names_the_config_key(source: Dates | Sort):
    with pytest.raises(DataError, match=r"^data\.dev\.rows: split"):
        list(source.rows())


def test_all_sequences_of_a_small_split_can_be_generated_but_not_more():
    with pytest.raises(DataError, match=r"rows: split 'dev' of 'sort' has at most \d+ different rows") as caught:
        list(Sort(symbols=2, longest=10, split="dev", rows=10**9).rows())
    maximum = int(str(caught.value).split("at most ")[1].split()[0])
    rows = texts(Sort(symbols=2, longest=10, split="dev", rows=maximum))
    assert len(set(rows)) == maximum


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows: must be at least 1, got 0"),
        ({"shortest": 0}, "shortest: must be at least 1, got 0"),
        ({"shortest": 5, "longest": 4}, "longest: must be at least 5, got 4"),
        ({"symbols": 0}, "symbols: must be at least 1, got 0"),
        ({"split": "valid"}, "split: unknown split 'valid' (known: train, dev, test)"),
    ],
)
def test_invalid_options_are_rejected(options: dict, message: str):
    with pytest.raises(DataError) as caught:
        Copy(**options)
    assert str(caught.value) == message


def test_location_names_the_source_the_split_and_the_row():
    first = next(Dates(split="test", rows=3).rows())
    assert isinstance(first, Pair)
    assert first.location == "dates.test:1"
    assert [pair.location for pair in Copy(rows=2).rows()] == ["copy.train:1", "copy.train:2"]
