"""The part of `data check` that every kind of row needs (findings, lengths), and those of labels and of series."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import dropwhile, islice

import numpy as np

from saccade.data.sources.rows import Frames, Row, Tagged

_FAULTS_SHOWN = 10
_PLACES_SHOWN = 3
_LABELS_SHOWN = 20
_GROUPS_SHOWN = 20
_LABEL_WIDTH = 13, 40
_BAR_WIDTH = 30

LocationOf = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the lines of one side are; the histogram's bins double: 0, 1, 2-3, 4-7 ..."""

    smallest: int
    mean: float
    median: float
    p95: float
    largest: int
    histogram: dict[str, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """How many rows have some property, and the first of them as "file:line: reason"."""

    count: int
    first: list[str]


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """How often each label stands in a split, the most frequent first; how many steps have none; what train lacks."""

    counts: dict[str, int]
    without: int
    not_in_train: Finding


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """All that was found in one split of series; lengths are in frames."""

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
    """A count, and the first few lines that say where and why."""

    def __init__(self, shown: int = _PLACES_SHOWN):
        self.shown = shown
        self.count = 0
        self.first: list[str] = []

    def add(self, line: str, rows: int = 1) -> None:
        self.count += rows
        if len(self.first) < self.shown:
            self.first.append(line)

    def finding(self) -> Finding:
        return Finding(self.count, self.first)


def fault_counter() -> FindingCounter:
    return FindingCounter(_FAULTS_SHOWN)


# ── lengths and repeats ───────────────────────────────────────────────────────────────────────────


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


def repeated(digests: array, place: LocationOf) -> Finding:
    """Find rows that stand earlier in the same split."""
    hashes = np.asarray(digests)
    known, first_at = np.unique(hashes, return_index=True)
    original = first_at[np.searchsorted(known, hashes)]
    again = np.flatnonzero(original != np.arange(len(hashes)))
    first = [f"{place(int(i))}: repeats {place(int(original[i]))}" for i in again[:_PLACES_SHOWN]]
    return Finding(len(again), first)


def shared(what: str, mine: array, place: LocationOf, theirs: array, their_place: LocationOf) -> Finding:
    """Find rows of which something (a source, a whole pair) also stands in train."""
    if not theirs:
        return Finding(0, [])
    hashes = np.asarray(mine)
    known, first_at = np.unique(np.asarray(theirs), return_index=True)
    nearest = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    seen = np.flatnonzero(known[nearest] == hashes)
    first = [
        f"{place(int(i))}: the {what} is in train too, at {their_place(int(first_at[nearest[i]]))}"
        for i in seen[:_PLACES_SHOWN]
    ]
    return Finding(len(seen), first)


# ── labels ────────────────────────────────────────────────────────────────────────────────────────


class LabelTally:
    """How often each label was seen, and where first."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def take(self, row: Row) -> None:
        labels = (row.target,) if isinstance(row.target, str) else row.target
        for label in {*labels} - self.first.keys():
            self.first[label] = _holder(row, labels.index(label))
        self.counts.update(labels)

    def labels(self, train: "LabelTally | None") -> LabelCounts:
        counts = {label: count for label, count in self.counts.most_common() if label}
        return LabelCounts(counts, self.counts[""], self._beyond(train, counts))

    def _beyond(self, train: "LabelTally | None", labels: Iterable[str]) -> Finding:
        """Find the labels that train never shows."""
        if train is None or not train.counts:
            return Finding(0, [])
        new = [label for label in labels if label not in train.counts]
        return Finding(
            len(new), [f"{self.first[label]} {label!r}, which train never shows" for label in new[:_LABELS_SHOWN]]
        )


def _holder(row: Row, step: int) -> str:
    if isinstance(row, Tagged):
        return f"{row.location}: the word {row.source[step]!r} has the label"
    if isinstance(row, Frames) and not isinstance(row.target, str):
        return f"{row.location}: frame {step} has the label"
    return f"{row.location}: has the label"


def label_lines(labels: LabelCounts) -> Iterator[str]:
    without = f", {labels.without:,} steps without one" if labels.without else ""
    yield f"  labels: {len(labels.counts):,} kinds, {sum(labels.counts.values()):,} in all{without}"
    shown = {_printable(label): count for label, count in islice(labels.counts.items(), _LABELS_SHOWN)}
    yield from _bars(shown)
    if len(labels.counts) > _LABELS_SHOWN:
        yield f"    ... and {len(labels.counts) - _LABELS_SHOWN:,} more kinds"
    yield from finding_lines("labels that train never shows", labels.not_in_train)


def _printable(label: str) -> str:
    longest = _LABEL_WIDTH[1]
    text = label if label.isprintable() else repr(label)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


# ── series ────────────────────────────────────────────────────────────────────────────────────────


class SeriesReading:
    """What one pass over a split of series keeps: for each its length, its place and an 8-byte hash."""

    def __init__(self, longest: int):
        self.longest = longest
        self.faults = fault_counter()
        self.too_long = FindingCounter()
        self.lengths = array("I")
        self.digests = array("Q")
        self.places: list[str] = []
        self.groups: Counter[str] = Counter()
        self.tally = LabelTally()
        self.width = 0

    def take(self, row: Frames) -> None:
        frames, self.width = row.source.shape
        self.lengths.append(frames)
        self.digests.append(digest(np.ascontiguousarray(row.source).tobytes()))
        self.places.append(row.location)
        self.tally.take(row)
        if row.group:
            self.groups[row.group] += 1
        if frames > self.longest:
            self.too_long.add(
                f"{row.location}: has {frames:,} frames, over {self.longest}: tagging cuts it, 'window' too"
            )

    def summary(self, train: "SeriesReading | None") -> SeriesReport:
        return SeriesReport(
            series=len(self.lengths),
            frames=sum(self.lengths),
            width=self.width,
            faults=self.faults.finding(),
            lengths=lengths_of(self.lengths),
            labels=self.tally.labels(train.tally if train else None),
            groups=dict(sorted(self.groups.items())),
            too_long=self.too_long.finding(),
            other_width=self._other_width(train),
            repeated=repeated(self.digests, self.places.__getitem__),
            series_in_train=self._in_train(train),
        )

    def _other_width(self, train: "SeriesReading | None") -> Finding:
        if train is None or not train.lengths or not self.lengths or train.width == self.width:
            return Finding(0, [])
        first = f"{self.places[0]}: has {self.width} numbers a frame, but {train.places[0]} has {train.width}"
        return Finding(len(self.lengths), [first])

    def _in_train(self, train: "SeriesReading | None") -> Finding:
        if train is None:
            return Finding(0, [])
        place, their_place = self.places.__getitem__, train.places.__getitem__
        return shared("series", self.digests, place, train.digests, their_place)


def series_lines(name: str, split: SeriesReport) -> Iterator[str]:
    yield (
        f"{name}: {split.series:,} series, {split.frames:,} frames of {split.width} numbers, "
        f"{split.faults.count:,} faults"
    )
    yield lengths_line("frames", split.lengths)
    filled = dropwhile(lambda one: not one[1], split.lengths.histogram.items())  # long series leave many bins empty
    yield from histogram_lines("frames, how many series", dict(filled))
    yield from label_lines(split.labels)
    if split.groups:
        groups = ", ".join(islice(split.groups, _GROUPS_SHOWN))
        yield f"  groups: {len(split.groups):,}: {groups}" + (", ..." if len(split.groups) > _GROUPS_SHOWN else "")
    findings = {
        "faults": split.faults,
        "too long": split.too_long,
        "of another width than train": split.other_width,
        "repeated": split.repeated,
        "wholly in train": split.series_in_train,
    }
    for title, finding in findings.items():
        yield from finding_lines(title, finding)


# ── as text ───────────────────────────────────────────────────────────────────────────────────────


def lengths_line(what: str, one: Lengths) -> str:
    spread = f"{one.smallest} to {one.largest}, mean {one.mean:.1f}, median {one.median:g}, 95% within {one.p95:g}"
    return f"  {what}: {spread}"


def histogram_lines(title: str, histogram: dict[str, int]) -> Iterator[str]:
    if histogram:
        yield f"  {title} have how many:"
    yield from _bars(histogram)


def _bars(counts: dict[str, int]) -> Iterator[str]:
    tallest = max(counts.values(), default=0)
    width = max([_LABEL_WIDTH[0], *map(len, counts)])
    for label, count in counts.items():
        bar = "#" * round(_BAR_WIDTH * count / tallest)
        yield f"    {label:>{width}} {count:>10,} {bar}".rstrip()


def finding_lines(title: str, finding: Finding) -> Sequence[str]:
    if not finding.count:
        return []
    hidden = finding.count - len(finding.first)
    more = [f"  ... and {hidden:,} more"] if hidden else []
    return [f"  {title}: {finding.count:,}", *finding.first, *more]
