"""`data check`: bad rows, lengths, duplicates, groups in several splits, and characters and labels missing in train."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Literal

import numpy as np

from saccade.console import track_fast
from saccade.data.check_series import SeriesReport, SeriesStatistics, series_lines
from saccade.data.findings import (
    Finding,
    FindingCounter,
    LabelCounter,
    LabelCounts,
    Lengths,
    bad_row_counter,
    digest,
    find_duplicates,
    find_overlap,
    finding_lines,
    histogram_lines,
    label_lines,
    lengths_line,
    lengths_of,
)
from saccade.data.sources.rows import BadRow, LineSource, Pair, Row, Series, Source, Tagged, line_total
from saccade.data.sources.series import shared_groups
from saccade.errors import DataError, plural

__all__ = ["Finding", "LabelCounts", "Lengths", "Report", "SeriesReport", "SplitReport", "check"]

SIDES = ("source", "target")
_EXAMPLES_SHOWN = 3
_CHARACTERS_SHOWN = 20
_RATIO_FACTOR = 3.0
_RATIO_MIN_CHARACTERS = 10
_PAIRS_COMPARED = 1 << 16  # at once


@dataclass(frozen=True, slots=True)
class SplitReport:
    """The results for one split of text. Dicts with two keys are by side: source and target. If the targets are labels,
    `labels` counts them, and their characters and length ratios are not checked."""

    pairs: int
    bad_rows: Finding
    words: dict[str, Lengths]
    characters: dict[str, Lengths]
    empty: Finding
    too_long: Finding
    odd_ratio: Finding
    repeated: Finding
    sources_in_train: Finding
    pairs_in_train: Finding
    unknown_characters: dict[str, dict[str, int]]
    labels: LabelCounts | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The results of `check` for each split. `shared_groups` are messages about groups that are in several splits."""

    splits: dict[str, SplitReport | SeriesReport]
    shared_groups: list[str]

    @property
    def bad(self) -> bool:
        """Whether any row is unusable, or a group is in several splits."""
        return bool(self.shared_groups) or any(split.bad_rows.count for split in self.splits.values())

    def plain(self) -> dict[str, object]:
        """The report as JSON-serializable values."""
        plain: dict[str, object] = {"bad": self.bad}
        plain["splits"] = {name: _plain(split) for name, split in self.splits.items()}
        if any(isinstance(split, SeriesReport) for split in self.splits.values()):
            plain["shared_groups"] = self.shared_groups
        return plain

    def lines(self) -> list[str]:
        """The report as lines of text. Each problem is a line `file:line: reason`."""
        lines = [line for name, split in self.splits.items() for line in _lines(name, split)]
        if self.shared_groups:
            lines += [f"groups in several splits: {len(self.shared_groups):,}", *self.shared_groups]
        return lines


def _plain(split: SplitReport | SeriesReport) -> dict[str, object]:
    return {key: value for key, value in asdict(split).items() if value is not None}


def check(splits: dict[str, Source], *, longest: int = 256, labels: bool = False) -> Report:
    """Read every split once, and compare the others with the split "train". Rows with more than `longest` words or
    frames are reported: `longest` is `data.longest`, a limit in tokens, and a text has at least as many tokens as
    words. `labels`: the targets of pairs are labels, not text."""
    statistics = {name: _read(source, longest, labels, name) for name, source in splits.items()}
    train = statistics.get("train")
    groups = {name: split.groups for name, split in statistics.items() if isinstance(split, SeriesStatistics)}
    reports = {name: _report(split, None if split is train else train) for name, split in statistics.items()}
    return Report(reports, shared_groups(groups))


class _TextStatistics:
    """The statistics of one split of text. Of each pair it keeps integers and 8-byte hashes, never the text."""

    def __init__(self, longest: int, labels: bool):
        self.longest = longest
        self.labels = LabelCounter() if labels else None
        self.bad_rows = bad_row_counter()
        self.empty = FindingCounter()
        self.too_long = FindingCounter()
        self.words: dict[str, Counter[int]] = {side: Counter() for side in SIDES}
        self.characters = {side: array("I") for side in SIDES}
        self.alphabets: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        self.source_hashes = array("Q")
        self.pair_hashes = array("Q")
        self.first_rows: dict[str, int] = {}  # of each file, whose rows follow each other
        self.line_of = array("I")

    def add(self, row: Pair | Tagged) -> None:
        name, _, line = row.location.rpartition(":")
        self.first_rows.setdefault(name, len(self.line_of))
        self.line_of.append(int(line))
        source, target = _text(row.source), _text(row.target)
        self.source_hashes.append(digest(source.encode()))
        self.pair_hashes.append(digest(f"{source}\n{target}".encode()))
        words = {"source": self._measure("source", source, row.source)}
        words["target"] = self._measure("target", target, row.target)
        self._check_sides(row.location, {"source": source, "target": target}, words)
        if self.labels:
            self.labels.add(row)

    def _measure(self, side: str, text: str, words: str | tuple[str, ...]) -> int:
        """Count characters and words, and return the number of words."""
        count = len(words.split() if isinstance(words, str) else words)
        self.words[side][count] += 1
        self.characters[side].append(len(text))
        self.alphabets[side].update(text)
        return count

    def _check_sides(self, location: str, texts: dict[str, str], words: dict[str, int]) -> None:
        empty = [side for side, text in texts.items() if not text.strip()]
        if empty:
            self.empty.add(f"{location}: the {' and the '.join(empty)} {'is' if len(empty) == 1 else 'are'} empty")
        sides = ("source",) if self.labels else SIDES
        long = [f"the {side} has {words[side]:,}" for side in sides if words[side] > self.longest]
        if long:
            self.too_long.add(f"{location}: {' and '.join(long)} words, more than data.longest = {self.longest:,}")

    def location(self, index: int) -> str:
        name = next(name for name in reversed(self.first_rows) if self.first_rows[name] <= index)
        return f"{name}:{self.line_of[index]}"


def _text(side: str | tuple[str, ...]) -> str:
    return side if isinstance(side, str) else " ".join(side)


def _read(source: Source, longest: int, labels: bool = False, name: str = "") -> _TextStatistics | SeriesStatistics:
    statistics: _TextStatistics | SeriesStatistics | None = None
    bad_rows = bad_row_counter()
    try:
        for row in _rows(name, source):
            if isinstance(row, BadRow):
                bad_rows.add(str(row), row.rows)
            elif isinstance(row, Series):
                if not isinstance(statistics, SeriesStatistics):
                    statistics = SeriesStatistics(longest)
                statistics.add(row)
            else:
                if not isinstance(statistics, _TextStatistics):
                    statistics = _TextStatistics(longest, labels or isinstance(row, Tagged))
                statistics.add(row)
    except DataError as error:
        bad_rows.add(str(error))  # a missing or damaged file counts as a bad row, so that the other splits are checked
    statistics = statistics or _TextStatistics(longest, labels)
    statistics.bad_rows = bad_rows
    return statistics


def _rows(name: str, source: Source) -> Iterator[Row | BadRow]:
    """The rows of a split, with progress where their number is known."""
    if not isinstance(source, LineSource):
        return source.rows()
    return track_fast(source.rows(), line_total(source), f"checking {name}")


def _report(
    split: _TextStatistics | SeriesStatistics, train: _TextStatistics | SeriesStatistics | None
) -> SplitReport | SeriesReport:
    """The report of a split, compared with train if both have the same type of rows."""
    if isinstance(split, SeriesStatistics):
        return split.summary(train if isinstance(train, SeriesStatistics) else None)
    return _text_report(split, train if isinstance(train, _TextStatistics) else None)


def _text_report(split: _TextStatistics, train: _TextStatistics | None) -> SplitReport:
    return SplitReport(
        pairs=len(split.pair_hashes),
        bad_rows=split.bad_rows.finding(),
        words={side: lengths_of(split.words[side]) for side in SIDES},
        characters={side: lengths_of(Counter(split.characters[side])) for side in SIDES},
        empty=split.empty.finding(),
        too_long=split.too_long.finding(),
        odd_ratio=Finding(0, []) if split.labels else _odd_ratios(split),
        repeated=find_duplicates(split.pair_hashes, split.location),
        sources_in_train=_overlap(split, train, "source"),
        pairs_in_train=_overlap(split, train, "pair"),
        unknown_characters={side: _unknown_characters(split, train, side) for side in SIDES},
        labels=split.labels.summary(train.labels if train else None) if split.labels else None,
    )


def _odd_ratios(split: _TextStatistics) -> Finding:
    """Find pairs whose ratio of source to target length is more than _RATIO_FACTOR times above or below the median.
    Pairs with an empty side, or with fewer than _RATIO_MIN_CHARACTERS characters on both sides, are not checked."""
    checked = array("d")
    for _, ratios in _length_ratios(split):
        checked.frombytes(ratios.tobytes())
    if not checked:
        return Finding(0, [])
    median = float(np.median(np.asarray(checked), overwrite_input=True))
    count, first = 0, []
    for rows, ratios in _length_ratios(split):
        odd = np.flatnonzero((ratios > median * _RATIO_FACTOR) | (ratios < median / _RATIO_FACTOR))
        count += len(odd)
        for i in odd[: _EXAMPLES_SHOWN - len(first)]:
            row = int(rows[i])
            source, target = (split.characters[side][row] for side in SIDES)
            lengths = f"{source} source and {target} target characters"
            first.append(f"{split.location(row)}: {lengths}, ratio {ratios[i]:.2f}; the median is {median:.2f}")
    return Finding(count, first)


def _length_ratios(split: _TextStatistics) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The row numbers of the pairs whose ratio is checked, and their ratios, in chunks."""
    source, target = (np.asarray(split.characters[side]) for side in SIDES)
    for start in range(0, len(source), _PAIRS_COMPARED):
        chunk = slice(start, start + _PAIRS_COMPARED)
        shorter, longer = np.minimum(source[chunk], target[chunk]), np.maximum(source[chunk], target[chunk])
        rows = start + np.flatnonzero((longer >= _RATIO_MIN_CHARACTERS) & (shorter > 0))
        yield rows, source[rows] / target[rows]


def _overlap(split: _TextStatistics, train: _TextStatistics | None, unit: Literal["source", "pair"]) -> Finding:
    """Find rows whose source, or whole pair, is also in train."""
    if train is None:
        return Finding(0, [])
    if unit == "source":
        return find_overlap(unit, split.source_hashes, split.location, train.source_hashes, train.location)
    return find_overlap(unit, split.pair_hashes, split.location, train.pair_hashes, train.location)


def _unknown_characters(split: _TextStatistics, train: _TextStatistics | None, side: str) -> dict[str, int]:
    """Count the characters that do not occur in train, the most frequent first."""
    if train is None or (split.labels and side == "target"):
        return {}
    known = train.alphabets[side]
    return {char: count for char, count in split.alphabets[side].most_common() if char not in known}


def _lines(name: str, split: SplitReport | SeriesReport) -> Iterator[str]:
    return series_lines(name, split) if isinstance(split, SeriesReport) else _split_lines(name, split)


def _split_lines(name: str, split: SplitReport) -> Iterator[str]:
    sides = ("source",) if split.labels else SIDES
    yield f"{name}: {plural(split.pairs, 'row' if split.labels else 'pair')}, {plural(split.bad_rows.count, 'bad row')}"
    for unit, lengths in (("words", split.words), ("characters", split.characters)):
        for side in sides:
            yield lengths_line(f"{side} {unit}", lengths[side])
    for side in sides:
        yield from histogram_lines(f"lines by number of {side} words", split.words[side].histogram)
    if split.labels:
        yield from label_lines(split.labels)
    findings = {
        "bad rows": split.bad_rows,
        "empty": split.empty,
        "too long": split.too_long,
        "with an unusual length ratio": split.odd_ratio,
        "repeated": split.repeated,
        "with a source that is also in train": split.sources_in_train,
        "with both sides in train": split.pairs_in_train,
    }
    for title, finding in findings.items():
        yield from finding_lines(title, finding)
    for side in SIDES:
        yield from _unknown_lines(side, split.unknown_characters[side])


def _unknown_lines(side: str, unknown: dict[str, int]) -> Iterable[str]:
    if not unknown:
        return []
    shown = ", ".join(f"{char!r} (U+{ord(char):04X}) {n:,}" for char, n in islice(unknown.items(), _CHARACTERS_SHOWN))
    more = ", ..." if len(unknown) > _CHARACTERS_SHOWN else ""
    return [f"  {side} characters that do not occur in train: {len(unknown):,}: {shown}{more}"]
