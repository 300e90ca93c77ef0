"""`data check`: what all kinds of rows share (findings, lengths), and the checks of labels and of series."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import dropwhile, islice

import numpy as np

from saccade.data.sources.rows import Frames, Row, Tagged

_FAULTS_SHOWN = 10
_EXAMPLES_SHOWN = 3
_LABELS_SHOWN = 20
_GROUPS_SHOWN = 20
_MIN_LABEL_WIDTH, _MAX_LABEL_WIDTH = 13, 40
_BAR_WIDTH = 30

LocationOf = Callable[[int], str]  # row number → "file:line"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Statistics of the line lengths of one side. The bins of the histogram are 0, 1, 2-3, 4-7, …"""

    smallest: int
    mean: float
    median: float
    p95: float
    largest: int
    histogram: dict[str, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """The number of rows with some property, and the first of them as "file:line: reason"."""

    count: int
    first: list[str]


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """The labels of a split with their counts (the most frequent first), the number of steps without a label, and the
    labels that do not occur in train."""

    counts: dict[str, int]
    without: int
    not_in_train: Finding


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """The results for one split of numeric series. Lengths are in frames."""

    series: int
    frames: int
    width: int
    faults: Finding
    lengths: Lengths
    labels: LabelCounts
    groups: dict[str, int]
    too_long: Finding
    other_width: Finding
    repeated: Finding
    series_in_train: Finding


class FindingCounter:
    """Counts rows, and keeps the first few messages about them."""

    def __init__(self, shown: int = _EXAMPLES_SHOWN):
        self.shown = shown
        self.count = 0
        self.first: list[str] = []

    def add(self, message: str, rows: int = 1) -> None:
        self.count += rows
        if len(self.first) < self.shown:
            self.first.append(message)

    def finding(self) -> Finding:
        return Finding(self.count, self.first)


def fault_counter() -> FindingCounter:
    return FindingCounter(_FAULTS_SHOWN)


# ── lengths and duplicates ────────────────────────────────────────────────────────────────────────


def digest(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big")


def lengths_of(values: array) -> Lengths:
    if not values:
        return Lengths(0, 0.0, 0.0, 0.0, 0, {})
    lengths = np.asarray(values)
    median, p95 = np.percentile(lengths, [50, 95])
    mean = float(lengths.mean())
    return Lengths(int(lengths.min()), mean, float(median), float(p95), int(lengths.max()), _histogram(lengths))


def _histogram(lengths: np.ndarray) -> dict[str, int]:
    # frexp's exponent is the number of binary digits: 0 for 0, 1 for 1, 2 for 2 and 3, 3 for 4 to 7
    counts = np.bincount(np.frexp(lengths.astype(float))[1])
    labels = ["0", "1", *(f"{2 ** (digits - 1)}-{2**digits - 1}" for digits in range(2, len(counts)))]
    return {label: int(count) for label, count in zip(labels, counts, strict=False)}


def find_duplicates(digests: array, location: LocationOf) -> Finding:
    """Find rows that repeat an earlier row of the same split."""
    hashes = np.asarray(digests)
    distinct, first_rows = np.unique(hashes, return_index=True)
    original = first_rows[np.searchsorted(distinct, hashes)]
    duplicates = np.flatnonzero(original != np.arange(len(hashes)))
    first = [f"{location(int(i))}: repeats {location(int(original[i]))}" for i in duplicates[:_EXAMPLES_SHOWN]]
    return Finding(len(duplicates), first)


def find_overlap(unit: str, digests: array, location: LocationOf, train: array, train_location: LocationOf) -> Finding:
    """Find rows whose digest also occurs in train. `unit` is what was hashed (source, pair, series), for messages."""
    if not train:
        return Finding(0, [])
    hashes = np.asarray(digests)
    distinct, first_rows = np.unique(np.asarray(train), return_index=True)
    nearest = np.minimum(np.searchsorted(distinct, hashes), len(distinct) - 1)
    overlap = np.flatnonzero(distinct[nearest] == hashes)
    first = [
        f"{location(int(i))}: the {unit} is also in train, at {train_location(int(first_rows[nearest[i]]))}"
        for i in overlap[:_EXAMPLES_SHOWN]
    ]
    return Finding(len(overlap), first)


# ── labels ────────────────────────────────────────────────────────────────────────────────────────


class LabelCounter:
    """Counts labels, and keeps the location of the first occurrence of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def add(self, row: Row) -> None:
        labels = (row.target,) if isinstance(row.target, str) else row.target
        for label in {*labels} - self.first.keys():
            self.first[label] = _label_location(row, labels.index(label))
        self.counts.update(labels)

    def summary(self, train: "LabelCounter | None") -> LabelCounts:
        counts = {label: count for label, count in self.counts.most_common() if label}
        return LabelCounts(counts, self.counts[""], self._not_in_train(train, counts))

    def _not_in_train(self, train: "LabelCounter | None", labels: Iterable[str]) -> Finding:
        if train is None or not train.counts:
            return Finding(0, [])
        new = [label for label in labels if label not in train.counts]
        first = [f"{self.first[label]} {label!r}, which does not occur in train" for label in new[:_LABELS_SHOWN]]
        return Finding(len(new), first)


def _label_location(row: Row, step: int) -> str:
    if isinstance(row, Tagged):
        return f"{row.location}: the word {row.source[step]!r} has the label"
    if isinstance(row, Frames) and not isinstance(row.target, str):
        return f"{row.location}: frame {step} has the label"
    return f"{row.location}: has the label"


def label_lines(labels: LabelCounts) -> Iterator[str]:
    unlabeled = f", {labels.without:,} steps without a label" if labels.without else ""
    yield f"  labels: {len(labels.counts):,} distinct, {sum(labels.counts.values()):,} in total{unlabeled}"
    shown = {_printable(label): count for label, count in islice(labels.counts.items(), _LABELS_SHOWN)}
    yield from _bars(shown)
    if len(labels.counts) > _LABELS_SHOWN:
        yield f"    ... and {len(labels.counts) - _LABELS_SHOWN:,} more labels"
    yield from finding_lines("labels that do not occur in train", labels.not_in_train)


def _printable(label: str) -> str:
    text = label if label.isprintable() else repr(label)
    return text if len(text) <= _MAX_LABEL_WIDTH else f"{text[: _MAX_LABEL_WIDTH - 1]}…"


# ── series ────────────────────────────────────────────────────────────────────────────────────────


class SeriesStatistics:
    """The statistics of one split of series. Of each series it keeps the length, the location and an 8-byte hash."""

    def __init__(self, longest: int):
        self.longest = longest
        self.faults = fault_counter()
        self.too_long = FindingCounter()
        self.lengths = array("I")
        self.digests = array("Q")
        self.locations: list[str] = []
        self.groups: Counter[str] = Counter()
        self.labels = LabelCounter()
        self.width = 0

    def add(self, row: Frames) -> None:
        frames, self.width = row.source.shape
        self.lengths.append(frames)
        self.digests.append(digest(np.ascontiguousarray(row.source).tobytes()))
        self.locations.append(row.location)
        self.labels.add(row)
        if row.group:
            self.groups[row.group] += 1
        if frames > self.longest:
            self.too_long.add(
                f"{row.location}: has {frames:,} frames, more than {self.longest}; "
                "tagging cuts it into windows, and classification needs the option 'window'"
            )

    def summary(self, train: "SeriesStatistics | None") -> SeriesReport:
        return SeriesReport(
            series=len(self.lengths),
            frames=sum(self.lengths),
            width=self.width,
            faults=self.faults.finding(),
            lengths=lengths_of(self.lengths),
            labels=self.labels.summary(train.labels if train else None),
            groups=dict(sorted(self.groups.items())),
            too_long=self.too_long.finding(),
            other_width=self._other_width(train),
            repeated=find_duplicates(self.digests, self.locations.__getitem__),
            series_in_train=self._in_train(train),
        )

    def _other_width(self, train: "SeriesStatistics | None") -> Finding:
        if train is None or not train.lengths or not self.lengths or train.width == self.width:
            return Finding(0, [])
        first = f"{self.locations[0]}: has {self.width} values per frame, but {train.locations[0]} has {train.width}"
        return Finding(len(self.lengths), [first])

    def _in_train(self, train: "SeriesStatistics | None") -> Finding:
        if train is None:
            return Finding(0, [])
        location, train_location = self.locations.__getitem__, train.locations.__getitem__
        return find_overlap("series", self.digests, location, train.digests, train_location)


def series_lines(name: str, split: SeriesReport) -> Iterator[str]:
    yield (
        f"{name}: {split.series:,} series, {split.frames:,} frames of {split.width} values, "
        f"{split.faults.count:,} faults"
    )
    yield lengths_line("frames", split.lengths)
    bins = dropwhile(lambda item: not item[1], split.lengths.histogram.items())  # the first bins are often empty
    yield from histogram_lines("series by number of frames", dict(bins))
    yield from label_lines(split.labels)
    if split.groups:
        groups = ", ".join(islice(split.groups, _GROUPS_SHOWN))
        yield f"  groups: {len(split.groups):,}: {groups}" + (", ..." if len(split.groups) > _GROUPS_SHOWN else "")
    findings = {
        "faults": split.faults,
        "too long": split.too_long,
        "with another width than train": split.other_width,
        "repeated": split.repeated,
        "also in train": split.series_in_train,
    }
    for title, finding in findings.items():
        yield from finding_lines(title, finding)


# ── the report as text ────────────────────────────────────────────────────────────────────────────


def lengths_line(title: str, lengths: Lengths) -> str:
    extent = f"{lengths.smallest} to {lengths.largest}, mean {lengths.mean:.1f}"
    return f"  {title}: {extent}, median {lengths.median:g}, 95th percentile {lengths.p95:g}"


def histogram_lines(title: str, histogram: dict[str, int]) -> Iterator[str]:
    if histogram:
        yield f"  {title}:"
    yield from _bars(histogram)


def _bars(counts: dict[str, int]) -> Iterator[str]:
    highest = max(counts.values(), default=0)
    width = max([_MIN_LABEL_WIDTH, *map(len, counts)])
    for label, count in counts.items():
        bar = "#" * round(_BAR_WIDTH * count / highest)
        yield f"    {label:>{width}} {count:>10,} {bar}".rstrip()


def finding_lines(title: str, finding: Finding) -> Sequence[str]:
    if not finding.count:
        return []
    hidden = finding.count - len(finding.first)
    more = [f"  ... and {hidden:,} more"] if hidden else []
    return [f"  {title}: {finding.count:,}", *finding.first, *more]
