"""`data check` reports each problem of a data set, and no others."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.data import check as check_module
from saccade.data.check import Finding, LabelCounts, Report, SeriesReport, SplitReport, check
from saccade.data.sources.columns import Columns
from saccade.data.sources.generated import Copy
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.rows import Source
from saccade.data.sources.series import LabeledSeries
from saccade.data.sources.tsv import Tsv


def tsv(folder: Path, name: str, *rows: tuple[str, str]) -> Tsv:
    text = "".join(f"{source}\t{target}\n" for source, target in rows)
    (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return Tsv(folder, file=name)


CLEAN = [(f"one house number {n} stands", f"ein haus nummer {n} steht") for n in range(10, 30)]


def check_train(folder: Path, *extra: tuple[str, str], longest: int = 256) -> Report:
    return check({"train": tsv(folder, "train.tsv", *CLEAN, *extra)}, longest=longest)


def test_clean_data_has_no_findings(tmp_path: Path):
    report = check_train(tmp_path)
    split = report.splits["train"]
    findings = [split.bad_rows, split.empty, split.too_long, split.odd_ratio, split.repeated]
    assert [finding.count for finding in findings] == [0] * 5
    assert split.pairs == 20
    assert not report.bad
    assert not any(".tsv:" in line for line in report.lines())


def test_lengths_are_summarized_in_words_and_in_characters(tmp_path: Path):
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
    bad_rows = report.splits["train"].bad_rows
    assert report.bad
    assert bad_rows.count == 12
    assert len(bad_rows.first) == 10
    assert bad_rows.first[0].startswith("t.en:2: byte 0xff")
    assert bad_rows.first[0] in report.lines()
    assert "  ... and 2 more" in report.lines()
    assert report.splits["train"].pairs == 12


def test_missing_file_is_a_bad_row_and_other_splits_are_still_read(tmp_path: Path):
    report = check({"train": Tsv(tmp_path, file="no.tsv"), "dev": tsv(tmp_path, "dev.tsv", *CLEAN)})
    assert report.bad
    assert "no such file; correct the option 'file'" in report.splits["train"].bad_rows.first[0]
    assert report.splits["dev"].pairs == 20
    json.dumps(report.plain())


def test_empty_sides_are_reported(tmp_path: Path):
    report = check_train(tmp_path, ("", "x"), ("x", " \u00a0"), ("", ""), ("", "y"))
    empty = report.splits["train"].empty
    assert empty.count == 4
    assert empty.first == [
        "train.tsv:21: the source is empty",
        "train.tsv:22: the target is empty",
        "train.tsv:23: the source and the target are empty",
    ]


def test_rows_with_more_words_than_the_limit_are_reported(tmp_path: Path):
    report = check_train(tmp_path, ("a a a a a a", "b b b b b b b"), ("a a", "b b"), longest=6)
    assert report.splits["train"].too_long.count == 1
    assert report.splits["train"].too_long.first == ["train.tsv:21: the target has 7 words, more than data.longest = 6"]


@pytest.mark.parametrize("pairs_compared", [3, 1 << 16])
def test_unusual_length_ratios_are_reported_except_for_short_lines(
    pairs_compared: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(check_module, "_PAIRS_COMPARED", pairs_compared)
    report = check_train(tmp_path, ("a" * 40, "b" * 10), ("a" * 10, "b" * 40), ("a" * 9, "b"), ("a" * 20, "b" * 10))
    odd = report.splits["train"].odd_ratio
    assert odd.count == 2
    assert odd.first[0].startswith("train.tsv:21: 40 source and 10 target characters, ratio 4.00; the median is 1.")
    assert odd.first[1].startswith("train.tsv:22: 10 source and 40 target characters, ratio 0.25; the median is 1.")


def test_duplicate_pairs_are_reported(tmp_path: Path):
    report = check_train(tmp_path, CLEAN[3], CLEAN[3], (CLEAN[4][0], "anders als sonst ist das"))
    repeated = report.splits["train"].repeated
    assert repeated.count == 2
    assert repeated.first == ["train.tsv:21: repeats train.tsv:4", "train.tsv:22: repeats train.tsv:4"]


@pytest.mark.parametrize("train_first", [True, False])
def test_rows_that_are_also_in_train_are_reported(tmp_path: Path, train_first: bool):
    train = tsv(tmp_path, "train.tsv", *CLEAN)
    dev = tsv(tmp_path, "dev.tsv", ("new house", "neues haus"), CLEAN[5], (CLEAN[6][0], "ein anderes haus"))
    order: list[tuple[str, Source]] = [("train", train), ("dev", dev)]
    splits = check(dict(order if train_first else order[::-1])).splits
    assert splits["dev"].sources_in_train.count == 2
    assert splits["dev"].pairs_in_train.count == 1
    assert splits["dev"].pairs_in_train.first == ["dev.tsv:2: the pair is also in train, at train.tsv:6"]
    assert splits["dev"].sources_in_train.first[1] == "dev.tsv:3: the source is also in train, at train.tsv:7"
    assert splits["train"].sources_in_train.count == 0


def test_characters_not_in_train_are_counted(tmp_path: Path):
    train = tsv(tmp_path, "train.tsv", ("abc", "abc"))
    test = tsv(tmp_path, "test.tsv", ("abz", "aéé"), ("zzq", "\u200bb"))
    report = check({"train": train, "test": test})
    unknown = report.splits["test"].unknown_characters
    assert unknown == {"source": {"z": 3, "q": 1}, "target": {"é": 2, "\u200b": 1}}
    assert "  source characters that do not occur in train: 2: 'z' (U+007A) 3, 'q' (U+0071) 1" in report.lines()
    assert any("'\\u200b' (U+200B) 1" in line for line in report.lines())


def test_locations_count_lines_of_the_file_not_pairs(tmp_path: Path):
    (tmp_path / "t.tsv").write_bytes(b"a\tb\nbad\nc\td\na\tb\n")
    split = check({"train": Tsv(tmp_path, file="t.tsv")}).splits["train"]
    assert split.repeated.first == ["t.tsv:4: repeats t.tsv:1"]


def test_empty_train_and_missing_train_are_accepted(tmp_path: Path):
    report = check({"train": tsv(tmp_path, "t.tsv"), "dev": tsv(tmp_path, "d.tsv", *CLEAN)})
    assert report.splits["train"].pairs == 0
    assert report.splits["dev"].pairs_in_train.count == 0
    assert check({"dev": tsv(tmp_path, "d.tsv", *CLEAN)}).splits["dev"].unknown_characters["source"] == {}
    assert report.lines()


def test_plain_report_survives_json(tmp_path: Path):
    plain = check_train(tmp_path, ("", "x"), CLEAN[0]).plain()
    assert json.loads(json.dumps(plain)) == plain


def test_generated_sources_can_be_checked():
    report = check({"train": Copy(rows=50), "test": Copy(rows=20, split="test")})
    assert report.splits["test"].sources_in_train.count == 0
    assert report.splits["train"].repeated.count == 0


def test_statistics_keep_no_text():
    statistics = check_module._read(Copy(rows=50), 256)
    assert isinstance(statistics, check_module._TextStatistics)
    assert len(statistics.pair_hashes) == 50
    assert statistics.pair_hashes.itemsize == 8
    collections = [value for value in vars(statistics).values() if isinstance(value, (list, set))]
    assert collections == []


# rows with labels


def columns(folder: Path, name: str, *sentences: str) -> Columns:
    text = "\n".join("".join(f"{token.replace('/', chr(9))}\n" for token in s.split()) for s in sentences)
    (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return Columns(folder, file=name)


def test_labels_of_tagged_words_are_counted_and_compared_with_train(tmp_path: Path):
    train = columns(tmp_path, "train.tsv", "the/D dog/N barks/V", "a/D cat/N", "the/D dog/N barks/V")
    dev = columns(tmp_path, "dev.tsv", "a/D cat/N", "oh/I ,/", "cats/N", "oh/J oh/I")
    report = check({"train": train, "dev": dev}, longest=2)
    train_report, dev_report = report.splits["train"], report.splits["dev"]
    assert isinstance(train_report, SplitReport)
    assert isinstance(dev_report, SplitReport)
    assert train_report.labels == LabelCounts({"D": 3, "N": 3, "V": 2}, 0, Finding(0, []))
    assert dev_report.labels == LabelCounts(
        {"N": 2, "I": 2, "D": 1, "J": 1},
        1,
        Finding(
            2,
            [
                "dev.tsv:4: the word 'oh' has the label 'I', which does not occur in train",
                "dev.tsv:9: the word 'oh' has the label 'J', which does not occur in train",
            ],
        ),
    )
    assert train_report.words["source"].largest == 3
    assert train_report.too_long.first[0] == "train.tsv:1: the source has 3 words, more than data.longest = 2"
    assert train_report.repeated.first == ["train.tsv:8: repeats train.tsv:1"]
    assert dev_report.pairs_in_train.first == ["dev.tsv:1: the pair is also in train, at train.tsv:5"]
    assert dev_report.unknown_characters == {"source": {",": 1}, "target": {}}
    assert not report.bad


def test_text_report_lists_labels_and_those_that_do_not_occur_in_train(tmp_path: Path):
    train = columns(tmp_path, "train.tsv", "the/D dog/N barks/V", "bad")
    report = check({"train": train, "dev": columns(tmp_path, "dev.tsv", "oh/I ,/")})
    lines = report.lines()
    assert lines[0] == "train: 1 row, 1 bad row"
    assert "  labels: 3 distinct, 3 in total" in lines
    assert "  labels: 1 distinct, 1 in total, 1 without a label" in lines
    assert "                D          1 ##############################" in lines
    assert "  labels that do not occur in train: 1" in lines
    assert "dev.tsv:1: the word 'oh' has the label 'I', which does not occur in train" in lines
    assert not any(line.startswith("  target") for line in lines)
    assert json.loads(json.dumps(report.plain())) == report.plain()
    assert report.bad


def test_only_the_most_frequent_labels_are_listed(tmp_path: Path):
    words = " ".join(f"w/L{n}" for n in range(30))
    lines = check({"train": columns(tmp_path, "t.tsv", words)}).lines()
    assert sum(line.strip().startswith("L") for line in lines) == 20
    assert "    ... and 10 more labels" in lines


def test_targets_of_pairs_can_be_labels(tmp_path: Path):
    train = tsv(tmp_path, "train.tsv", *[(f"some text of number {n}", "pos" if n % 3 else "neg") for n in range(20)])
    dev = tsv(tmp_path, "dev.tsv", ("a text", "pos"), ("another text", "neutral"), ("a third", ""), ("x" * 300, "pos"))
    report = check({"train": train, "dev": dev}, labels=True)
    split = report.splits["dev"]
    assert isinstance(split, SplitReport)
    assert split.labels == LabelCounts(
        {"pos": 2, "neutral": 1},
        1,
        Finding(1, ["dev.tsv:2: has the label 'neutral', which does not occur in train"]),
    )
    assert split.odd_ratio.count == 0
    assert split.empty.first == ["dev.tsv:3: the target is empty"]


def test_targets_of_pairs_are_text_by_default(tmp_path: Path):
    report = check_train(tmp_path)
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


def test_series_report_counts_series_frames_labels_and_groups(tmp_path: Path):
    train = series(tmp_path, "train.npz", {"u1_0": 8, "u1_1": 3, "u2_0": 5})
    report = check({"train": train}, longest=5)
    split = series_report(report, "train")
    assert (split.series, split.frames, split.width) == (3, 16, 2)
    assert (split.lengths.smallest, split.lengths.largest) == (3, 8)
    assert split.labels == LabelCounts({"0": 4, "1": 4, "2": 3}, 5, Finding(0, []))
    assert split.groups == {"u1": 2, "u2": 1}
    limit = "more than data.longest = 5; tagging cuts it into windows, and classification needs the option 'window'"
    assert split.too_long == Finding(1, [f"train.npz:u1_0: has 8 frames, {limit}"])
    assert not report.bad
    lines = report.lines()
    assert lines[0] == "train: 3 series, 16 frames of 2 values, 0 bad rows"
    assert lines[3].split() == ["2-3", "1", "#" * 30]
    assert "  groups: 2: u1, u2" in lines
    assert json.loads(json.dumps(report.plain())) == report.plain()


def test_a_group_in_two_splits_makes_the_report_bad(tmp_path: Path):
    train = series(tmp_path, "train.npz", {"u1_0": 8, "u2_0": 5})
    report = check({"train": train, "dev": series(tmp_path, "dev.npz", {"u3_0": 4, "u2_1": 6})})
    assert report.shared_groups == ["group u2 is in data.train and data.dev"]
    assert report.bad
    assert report.lines()[-2:] == ["groups in several splits: 1", *report.shared_groups]
    assert report.plain()["shared_groups"] == report.shared_groups


def test_series_are_compared_with_train(tmp_path: Path):
    train = series(tmp_path, "train.npz", {"u1": 8, "u2": 8, "u3": 1}, window=4)
    dev = series(tmp_path, "dev.npz", {"v1": 8, "v2": 3}, unlabeled="none")
    test = series(tmp_path, "test.npz", {"w1": 3}, width=5)
    report = check({"train": train, "dev": dev, "test": test})
    split = series_report(report, "dev")
    assert split.labels.not_in_train.first == ["dev.npz:v1: frame 0 has the label '-1', which does not occur in train"]
    assert split.series_in_train.count == 0
    other = series_report(report, "test").other_width
    assert other == Finding(1, ["test.npz:w1: has 5 values per frame, but train.npz:u1:0 has 2"])
    again = check({"train": train, "dev": series(tmp_path, "again.npz", {"x1": 8}, window=4)})
    assert series_report(again, "dev").series_in_train.first == [
        "again.npz:x1:0: the series is also in train, at train.npz:u1:0",
        "again.npz:x1:4: the series is also in train, at train.npz:u1:4",
    ]


def test_unusable_series_and_missing_files_are_bad_rows(tmp_path: Path):
    np.savez(tmp_path / "t.npz", a_x=np.full((3, 2), np.nan), a_y=np.arange(3), b_x=np.ones((3, 2)), b_y=np.array(1))
    report = check({"train": LabeledSeries(tmp_path, file="t.npz"), "dev": LabeledSeries(tmp_path, file="none.npz")})
    assert series_report(report, "train").bad_rows.first[0].startswith("t.npz:a: row 0, column 0 is NaN")
    assert series_report(report, "train").labels.counts == {"1": 1}
    assert "no such file" in report.splits["dev"].bad_rows.first[0]
    assert report.bad
    assert report.lines()


def test_splits_with_different_row_types_are_not_compared(tmp_path: Path):
    train = series(tmp_path, "train.npz", {"u1": 8})
    report = check({"train": train, "dev": tsv(tmp_path, "dev.tsv", *CLEAN)})
    dev = report.splits["dev"]
    assert isinstance(dev, SplitReport)
    assert dev.unknown_characters["source"] == {}
    assert report.lines()
    swapped = check({"train": tsv(tmp_path, "dev.tsv", *CLEAN), "dev": train})
    assert series_report(swapped, "dev").labels.not_in_train.count == 0
