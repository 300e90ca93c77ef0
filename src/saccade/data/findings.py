"""The parts of `data check` that text and series share: findings, lengths, duplicates, label counts, and their lines in
the report."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

import numpy as np

from saccade.data.sources.rows import Row, Series, Tagged

_BAD_ROWS_SHOWN = 10
_EXAMPLES_SHOWN = 3
_HASHES_COMPARED = 1 << 20  # at once
_LABELS_SHOWN = 20
_MIN_LABEL_WIDTH, _MAX_LABEL_WIDTH = 13, 40
_BAR_WIDTH = 30

LocationOf = Callable[[int], str]  # row number → "file:line"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Statistics of lengths: words or characters of one side of a text, or frames of series. The bins of the histogram
    are 0, 1, 2-3, 4-7, …"""

    smallest: int
    mean: float
    median: float
    p95: float
    largest: int
    histogram: dict[str, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """The number of rows with some property (`LabelCounts.not_in_train`: of labels), and messages about the first of
    them, as "file:line: reason"."""

    count: int
    first: list[str]


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """The labels of a split with their counts (the most frequent first), the number of words, frames or rows without a
    label, and the labels that do not occur in train."""

    counts: dict[str, int]
    unlabeled: int
    not_in_train: Finding


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


def bad_row_counter() -> FindingCounter:
    return FindingCounter(_BAD_ROWS_SHOWN)


# ── lengths and duplicates ────────────────────────────────────────────────────────────────────────


def digest(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big")


def lengths_of(counts: Counter[int]) -> Lengths:
    """The statistics of lengths, from the number of rows of each length."""
    if not counts:
        return Lengths(0, 0.0, 0.0, 0.0, 0, {})
    lengths = np.array(sorted(counts))
    numbers = np.array([counts[length] for length in lengths.tolist()])
    ends, total = np.cumsum(numbers), int(numbers.sum())
    median, p95 = (_quantile(lengths, ends, share * (total - 1)) for share in (0.5, 0.95))
    mean = int(lengths @ numbers) / total
    return Lengths(int(lengths[0]), mean, median, p95, int(lengths[-1]), _histogram(lengths, numbers))


def _quantile(lengths: np.ndarray, ends: np.ndarray, position: float) -> float:
    """The value at a position of the sorted rows, interpolated between the two nearest."""
    low, high = (int(lengths[np.searchsorted(ends, int(at), side="right")]) for at in (position, np.ceil(position)))
    return low + (high - low) * (position - int(position))


def _histogram(lengths: np.ndarray, numbers: np.ndarray) -> dict[str, int]:
    # frexp's exponent is the number of binary digits: 0 for 0, 1 for 1, 2 for 2 and 3, 3 for 4 to 7
    counts = np.bincount(np.frexp(lengths.astype(float))[1], numbers)
    labels = ["0", "1", *(f"{2 ** (digits - 1)}-{2**digits - 1}" for digits in range(2, len(counts)))]
    return {label: int(count) for label, count in zip(labels, counts, strict=False)}


def find_duplicates(digests: array, location: LocationOf) -> Finding:
    """Find rows that repeat an earlier row of the same split."""
    hashes = np.asarray(digests)
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    first = []
    originals: dict[int, int] = {}
    for row in _rows_with(hashes, repeated) if len(repeated) else ():
        original = originals.setdefault(int(hashes[row]), row)
        if original != row:
            first.append(f"{location(row)}: repeats {location(original)}")
        if len(first) == _EXAMPLES_SHOWN:
            break
    return Finding(len(repeated), first)


def find_overlap(unit: str, digests: array, location: LocationOf, train: array, train_location: LocationOf) -> Finding:
    """Find rows whose digest also occurs in train. `unit` is what was hashed (source, pair, series), for messages."""
    if not train:
        return Finding(0, [])
    hashes, train_hashes = np.asarray(digests), np.asarray(train)
    overlap = np.flatnonzero(_is_in(hashes, np.sort(train_hashes)))
    first = []
    for row in overlap[:_EXAMPLES_SHOWN].tolist():
        original = next(_rows_with(train_hashes, hashes[row : row + 1]))
        first.append(f"{location(row)}: the {unit} is also in train, at {train_location(original)}")
    return Finding(len(overlap), first)


def _rows_with(hashes: np.ndarray, wanted: np.ndarray) -> Iterator[int]:
    """The rows with one of the wanted hashes, which are sorted."""
    for first in range(0, len(hashes), _HASHES_COMPARED):
        yield from (first + np.flatnonzero(_is_in(hashes[first : first + _HASHES_COMPARED], wanted))).tolist()


def _is_in(hashes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Whether each hash is one of the known ones, which are sorted."""
    return known[np.minimum(np.searchsorted(known, hashes), len(known) - 1)] == hashes


# ── labels ────────────────────────────────────────────────────────────────────────────────────────


class LabelCounter:
    """Counts labels, and keeps the beginning of a message about the first occurrence of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first_messages: dict[str, str] = {}

    def add(self, row: Row) -> None:
        labels = (row.target,) if isinstance(row.target, str) else row.target
        for label in {*labels} - self.first_messages.keys():
            self.first_messages[label] = _label_message(row, labels.index(label))
        self.counts.update(labels)

    def summary(self, train: "LabelCounter | None") -> LabelCounts:
        counts = {label: count for label, count in self.counts.most_common() if label}
        return LabelCounts(counts, self.counts[""], self._not_in_train(train, counts))

    def _not_in_train(self, train: "LabelCounter | None", labels: Iterable[str]) -> Finding:
        if train is None or not train.counts:
            return Finding(0, [])
        new = [label for label in labels if label not in train.counts]
        beginnings = ((self.first_messages[label], label) for label in new[:_LABELS_SHOWN])
        first = [f"{message} {label!r}, which does not occur in train" for message, label in beginnings]
        return Finding(len(new), first)


def _label_message(row: Row, index: int) -> str:
    """The beginning of a message about a label, such as "f:3: the word 'x' has the label"."""
    if isinstance(row, Tagged):
        return f"{row.location}: the word {row.source[index]!r} has the label"
    if isinstance(row, Series) and not isinstance(row.target, str):
        return f"{row.location}: frame {index} has the label"
    return f"{row.location}: has the label"


def label_lines(labels: LabelCounts) -> Iterator[str]:
    unlabeled = f", {labels.unlabeled:,} without a label" if labels.unlabeled else ""
    yield f"  labels: {len(labels.counts):,} distinct, {sum(labels.counts.values()):,} in total{unlabeled}"
    shown = {_printable(label): count for label, count in islice(labels.counts.items(), _LABELS_SHOWN)}
    yield from _bars(shown)
    if len(labels.counts) > _LABELS_SHOWN:
        yield f"    ... and {len(labels.counts) - _LABELS_SHOWN:,} more labels"
    yield from finding_lines("labels that do not occur in train", labels.not_in_train)


def _printable(label: str) -> str:
    text = label if label.isprintable() else repr(label)
    return text if len(text) <= _MAX_LABEL_WIDTH else f"{text[: _MAX_LABEL_WIDTH - 1]}…"


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
