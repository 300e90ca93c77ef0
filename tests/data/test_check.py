"""The report on a data set finds what was planted in it, and nothing else."""

import json
from pathlib import Path

import pytest

from saccade.data import check as check_module
from saccade.data.check import Report, check
from saccade.data.generated import Copy
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.rows import Source
from saccade.data.sources.tsv import Tsv


def tsv(folder: Path, name: str, *rows: tuple[str, str]) -> Tsv:
    text = "".join(f"{source}\t{target}\n" for source, target in rows)
    (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return Tsv(folder, file=name)


CLEAN = [(f"one house number {n} stands", f"ein haus nummer {n} steht") for n in range(10, 30)]


def checked(folder: Path, *extra: tuple[str, str], longest: int = 256) -> Report:
    return check({"train": tsv(folder, "train.tsv", *CLEAN, *extra)}, longest=longest)


def test_clean_data_has_no_findings(tmp_path: Path):
    report = checked(tmp_path)
    split = report.splits["train"]
    findings = [split.faults, split.empty, split.too_long, split.odd_ratio, split.repeated]
    assert [finding.count for finding in findings] == [0] * 5
    assert split.pairs == 20
    assert not report.bad
    assert not any(".tsv:" in line for line in report.lines())


def test_lengths(tmp_path: Path):
    rows = [(" ".join("a" * n), "b" * n) for n in range(1, 6)]
    split = check({"train": tsv(tmp_path, "t.tsv", *rows)}).splits["train"]
    words, characters = split.words["source"], split.characters["source"]
    assert (words.smallest, words.mean, words.median, words.p95, words.largest) == (1, 3, 3, 4.8, 5)
    assert (characters.smallest, characters.largest) == (1, 9)
    assert words.histogram == {"0": 0, "1": 1, "2-3": 2, "4-7": 2}
    assert split.words["target"].largest == 1
    assert split.characters["target"].histogram == words.histogram


def test_faults_make_the_report_bad(tmp_path: Path):
    (tmp_path / "t.en").write_bytes(b"a\n\xff\n" * 12)
    (tmp_path / "t.de").write_bytes(b"a\nb\n" * 12)
    report = check({"train": Pairs(tmp_path, src="t.en", tgt="t.de")})
    faults = report.splits["train"].faults
    assert report.bad
    assert faults.count == 12
    assert len(faults.first) == 10
    assert faults.first[0].startswith("t.en:2: byte 0xff")
    assert faults.first[0] in report.lines()
    assert "  ... and 2 more" in report.lines()
    assert report.splits["train"].pairs == 12


def test_missing_file_is_a_finding_and_the_other_splits_are_read(tmp_path: Path):
    report = check({"train": Tsv(tmp_path, file="no.tsv"), "dev": tsv(tmp_path, "dev.tsv", *CLEAN)})
    assert report.bad
    assert "no such file (asked for by 'file')" in report.splits["train"].faults.first[0]
    assert report.splits["dev"].pairs == 20
    json.dumps(report.plain())


def test_empty_lines(tmp_path: Path):
    report = checked(tmp_path, ("", "x"), ("x", " \u00a0"), ("", ""), ("", "y"))
    empty = report.splits["train"].empty
    assert empty.count == 4
    assert empty.first == [
        "train.tsv:21: the source is empty",
        "train.tsv:22: the target is empty",
        "train.tsv:23: the source and the target is empty",
    ]


def test_too_long(tmp_path: Path):
    report = checked(tmp_path, ("a a a a a a", "b b b b b b b"), ("a a", "b b"), longest=6)
    assert report.splits["train"].too_long.count == 1
    assert report.splits["train"].too_long.first == ["train.tsv:21: the target has 7 words, more than 6"]


def test_odd_ratio_both_ways_but_not_between_short_lines(tmp_path: Path):
    report = checked(tmp_path, ("a" * 40, "b" * 10), ("a" * 10, "b" * 40), ("a" * 9, "b"), ("a" * 20, "b" * 10))
    odd = report.splits["train"].odd_ratio
    assert odd.count == 2
    assert odd.first[0].startswith("train.tsv:21: 40 characters against 10, ratio 4.00 where 1.")
    assert odd.first[1].startswith("train.tsv:22: 10 characters against 40, ratio 0.25 where 1.")


def test_repeated_pairs(tmp_path: Path):
    report = checked(tmp_path, CLEAN[3], CLEAN[3], (CLEAN[4][0], "anders als sonst ist das"))
    repeated = report.splits["train"].repeated
    assert repeated.count == 2
    assert repeated.first == ["train.tsv:21: repeats train.tsv:4", "train.tsv:22: repeats train.tsv:4"]


@pytest.mark.parametrize("train_first", [True, False])
def test_overlap_with_train(tmp_path: Path, train_first: bool):
    train = tsv(tmp_path, "train.tsv", *CLEAN)
    dev = tsv(tmp_path, "dev.tsv", ("new house", "neues haus"), CLEAN[5], (CLEAN[6][0], "ein anderes haus"))
    order: list[tuple[str, Source]] = [("train", train), ("dev", dev)]
    splits = check(dict(order if train_first else order[::-1])).splits
    assert splits["dev"].sources_in_train.count == 2
    assert splits["dev"].pairs_in_train.count == 1
    assert splits["dev"].pairs_in_train.first == ["dev.tsv:2: the pair is in train too, at train.tsv:6"]
    assert splits["dev"].sources_in_train.first[1] == "dev.tsv:3: the source is in train too, at train.tsv:7"
    assert splits["train"].sources_in_train.count == 0


def test_unknown_characters(tmp_path: Path):
    train = tsv(tmp_path, "train.tsv", ("abc", "abc"))
    test = tsv(tmp_path, "test.tsv", ("abz", "aéé"), ("zzq", "\u200bb"))
    report = check({"train": train, "test": test})
    unknown = report.splits["test"].unknown_characters
    assert unknown == {"source": {"z": 3, "q": 1}, "target": {"é": 2, "\u200b": 1}}
    assert "  source characters that train never shows: 2: 'z' (U+007A) 3, 'q' (U+0071) 1" in report.lines()
    assert any("'\\u200b' (U+200B) 1" in line for line in report.lines())


def test_places_count_lines_of_the_file_not_pairs(tmp_path: Path):
    (tmp_path / "t.tsv").write_bytes(b"a\tb\nbad\nc\td\na\tb\n")
    split = check({"train": Tsv(tmp_path, file="t.tsv")}).splits["train"]
    assert split.repeated.first == ["t.tsv:4: repeats t.tsv:1"]


def test_splits_without_rows_or_without_train(tmp_path: Path):
    report = check({"train": tsv(tmp_path, "t.tsv"), "dev": tsv(tmp_path, "d.tsv", *CLEAN)})
    assert report.splits["train"].pairs == 0
    assert report.splits["dev"].pairs_in_train.count == 0
    assert check({"dev": tsv(tmp_path, "d.tsv", *CLEAN)}).splits["dev"].unknown_characters["source"] == {}
    assert report.lines()


def test_plain_is_json_and_round_trips(tmp_path: Path):
    plain = checked(tmp_path, ("", "x"), CLEAN[0]).plain()
    assert json.loads(json.dumps(plain)) == plain


def test_generated_sources_can_be_checked():
    report = check({"train": Copy(rows=50), "test": Copy(rows=20, split="test")})
    assert report.splits["test"].sources_in_train.count == 0
    assert report.splits["train"].repeated.count == 0


def test_no_text_is_kept():
    reading = check_module._read(Copy(rows=50), 256)
    assert len(reading.pair_hashes) == 50
    assert reading.pair_hashes.itemsize == 8
    held = [value for value in vars(reading).values() if isinstance(value, (list, set))]
    assert held == []
