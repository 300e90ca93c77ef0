"""The report on a data set finds what was planted in it, and nothing else."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.data import check as check_module
from saccade.data.check import Finding, LabelCounts, Report, SeriesReport, SplitReport, check
from saccade.data.sources.generated import Copy
from saccade.data.sources.columns import Columns
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.rows import Source
from saccade.data.sources.series import LabeledSeries
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


# rows with labels


def columns(folder: Path, name: str, *sentences: str) -> Columns:
    text = "\n".join("".join(f"{token.replace('/', chr(9))}\n" for token in s.split()) for s in sentences)
    (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return Columns(folder, file=name)


def test_words_and_labels(tmp_path: Path):
    train = columns(tmp_path, "train.tsv", "the/D dog/N barks/V", "a/D cat/N", "the/D dog/N barks/V")
    dev = columns(tmp_path, "dev.tsv", "a/D cat/N", "oh/I ,/", "cats/N", "oh/J oh/I")
    report = check({"train": train, "dev": dev}, longest=2)
    found, held_out = report.splits["train"], report.splits["dev"]
    assert isinstance(found, SplitReport)
    assert isinstance(held_out, SplitReport)
    assert found.labels == LabelCounts({"D": 3, "N": 3, "V": 2}, 0, Finding(0, []))
    assert held_out.labels == LabelCounts(
        {"N": 2, "I": 2, "D": 1, "J": 1},
        1,
        Finding(
            2,
            [
                "dev.tsv:4: the word 'oh' has the label 'I', which train never shows",
                "dev.tsv:9: the word 'oh' has the label 'J', which train never shows",
            ],
        ),
    )
    assert found.words["source"].largest == 3
    assert found.too_long.first[0] == "train.tsv:1: the source has 3 words, more than 2"
    assert found.repeated.first == ["train.tsv:8: repeats train.tsv:1"]
    assert held_out.pairs_in_train.first == ["dev.tsv:1: the pair is in train too, at train.tsv:5"]
    assert held_out.unknown_characters == {"source": {",": 1}, "target": {}}
    assert not report.bad


def test_lines_of_words_and_labels(tmp_path: Path):
    train = columns(tmp_path, "train.tsv", "the/D dog/N barks/V", "bad")
    report = check({"train": train, "dev": columns(tmp_path, "dev.tsv", "oh/I ,/")})
    lines = report.lines()
    assert lines[0] == "train: 1 rows, 1 faults"
    assert "  labels: 3 kinds, 3 in all" in lines
    assert "  labels: 1 kinds, 1 in all, 1 steps without one" in lines
    assert "                D          1 ##############################" in lines
    assert "  labels that train never shows: 1" in lines
    assert "dev.tsv:1: the word 'oh' has the label 'I', which train never shows" in lines
    assert not any(line.startswith("  target") for line in lines)
    assert json.loads(json.dumps(report.plain())) == report.plain()
    assert report.bad


def test_many_labels_are_cut_short(tmp_path: Path):
    words = " ".join(f"w/L{n}" for n in range(30))
    lines = check({"train": columns(tmp_path, "t.tsv", words)}).lines()
    assert sum(line.strip().startswith("L") for line in lines) == 20
    assert "    ... and 10 more kinds" in lines


def test_pairs_whose_targets_are_labels(tmp_path: Path):
    train = tsv(tmp_path, "train.tsv", *[(f"some text of number {n}", "pos" if n % 3 else "neg") for n in range(20)])
    dev = tsv(tmp_path, "dev.tsv", ("a text", "pos"), ("another text", "neutral"), ("a third", ""), ("x" * 300, "pos"))
    report = check({"train": train, "dev": dev}, labels=True)
    found = report.splits["dev"]
    assert isinstance(found, SplitReport)
    assert found.labels == LabelCounts(
        {"pos": 2, "neutral": 1},
        1,
        Finding(1, ["dev.tsv:2: has the label 'neutral', which train never shows"]),
    )
    assert found.odd_ratio.count == 0
    assert found.empty.first == ["dev.tsv:3: the target is empty"]


def test_labels_of_pairs_are_not_counted_unless_asked_for(tmp_path: Path):
    report = checked(tmp_path)
    assert report.splits["train"].labels is None
    assert "labels" not in report.plain()["splits"]["train"]  # type: ignore[index]
    assert set(report.plain()) == {"bad", "splits"}


# series


def series(folder: Path, name: str, lengths: dict[str, int], width: int = 2, **options: Any) -> LabeledSeries:
    arrays: dict[str, Any] = {}
    for seed, (key, length) in enumerate(lengths.items()):
        arrays[f"{key}_x"] = np.random.default_rng([seed, length]).normal(size=(length, width))
        arrays[f"{key}_y"] = np.arange(length) % 4 - 1
    np.savez(folder / name, **arrays)
    return LabeledSeries(folder, file=name, **options)


def series_report(report: Report, name: str) -> SeriesReport:
    split = report.splits[name]
    assert isinstance(split, SeriesReport)
    return split


def test_series(tmp_path: Path):
    train = series(tmp_path, "train.npz", {"u1_0": 8, "u1_1": 3, "u2_0": 5})
    report = check({"train": train}, longest=5)
    found = series_report(report, "train")
    assert (found.series, found.frames, found.width) == (3, 16, 2)
    assert (found.lengths.smallest, found.lengths.largest) == (3, 8)
    assert found.labels == LabelCounts({"0": 4, "1": 4, "2": 3}, 5, Finding(0, []))
    assert found.groups == {"u1": 2, "u2": 1}
    assert found.too_long == Finding(1, ["train.npz:u1_0: has 8 frames, over 5: tagging cuts it, 'window' too"])
    assert not report.bad
    lines = report.lines()
    assert lines[0] == "train: 3 series, 16 frames of 2 numbers, 0 faults"
    assert lines[3].split() == ["2-3", "1", "#" * 30]
    assert "  groups: 2: u1, u2" in lines
    assert json.loads(json.dumps(report.plain())) == report.plain()


def test_a_group_in_two_splits_makes_the_report_bad(tmp_path: Path):
    train = series(tmp_path, "train.npz", {"u1_0": 8, "u2_0": 5})
    report = check({"train": train, "dev": series(tmp_path, "dev.npz", {"u3_0": 4, "u2_1": 6})})
    assert report.leaks == ["group u2 is in data.train and data.dev"]
    assert report.bad
    assert report.lines()[-2:] == ["groups in two splits: 1", *report.leaks]
    assert report.plain()["leaks"] == report.leaks


def test_series_held_against_train(tmp_path: Path):
    train = series(tmp_path, "train.npz", {"u1": 8, "u2": 8, "u3": 1}, window=4)
    dev = series(tmp_path, "dev.npz", {"v1": 8, "v2": 3}, unlabeled="none")
    test = series(tmp_path, "test.npz", {"w1": 3}, width=5)
    report = check({"train": train, "dev": dev, "test": test})
    found = series_report(report, "dev")
    assert found.labels.not_in_train.first == ["dev.npz:v1: frame 0 has the label '-1', which train never shows"]
    assert found.series_in_train.count == 0
    other = series_report(report, "test").other_width
    assert other == Finding(1, ["test.npz:w1: has 5 numbers a frame, but train.npz:u1:0 has 2"])
    again = check({"train": train, "dev": series(tmp_path, "again.npz", {"x1": 8}, window=4)})
    assert series_report(again, "dev").series_in_train.first == [
        "again.npz:x1:0: the series is in train too, at train.npz:u1:0",
        "again.npz:x1:4: the series is in train too, at train.npz:u1:4",
    ]


def test_bad_and_missing_series_are_findings(tmp_path: Path):
    np.savez(tmp_path / "t.npz", a_x=np.full((3, 2), np.nan), a_y=np.arange(3), b_x=np.ones((3, 2)), b_y=np.array(1))
    report = check({"train": LabeledSeries(tmp_path, file="t.npz"), "dev": LabeledSeries(tmp_path, file="none.npz")})
    assert series_report(report, "train").faults.first[0].startswith("t.npz:a: row 0, column 0 is NaN")
    assert series_report(report, "train").labels.counts == {"1": 1}
    assert "no such file" in report.splits["dev"].faults.first[0]
    assert report.bad
    assert report.lines()


def test_splits_of_two_kinds_are_not_held_against_each_other(tmp_path: Path):
    train = series(tmp_path, "train.npz", {"u1": 8})
    report = check({"train": train, "dev": tsv(tmp_path, "dev.tsv", *CLEAN)})
    dev = report.splits["dev"]
    assert isinstance(dev, SplitReport)
    assert dev.unknown_characters["source"] == {}
    assert report.lines()
    turned = check({"train": tsv(tmp_path, "dev.tsv", *CLEAN), "dev": train})
    assert series_report(turned, "dev").labels.not_in_train.count == 0
