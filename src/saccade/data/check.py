"""Look over the data before training: faults, lengths, repeats, leaks between splits, unseen characters."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import islice

import numpy as np

from saccade.data.sources.rows import Fault, Pair, Source
from saccade.errors import DataError

SIDES = ("source", "target")
_FAULTS_SHOWN = 10
_PLACES_SHOWN = 3
_CHARACTERS_SHOWN = 20
_RATIO_FACTOR = 3.0
_RATIO_MIN_CHARACTERS = 10
_BAR_WIDTH = 30


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
class SplitReport:
    """All that was found in one split; dicts with two keys are by side, source and target."""

    pairs: int
    faults: Finding
    words: dict[str, Lengths]
    characters: dict[str, Lengths]
    empty: Finding
    too_long: Finding
    odd_ratio: Finding
    repeated: Finding
    sources_in_train: Finding
    pairs_in_train: Finding
    unknown_characters: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Report:
    """What `check` found in each split."""

    splits: dict[str, SplitReport]

    @property
    def bad(self) -> bool:
        """Tell whether any row cannot be read at all."""
        return any(split.faults.count for split in self.splits.values())

    def plain(self) -> dict[str, object]:
        """Give dicts, lists, strings and numbers only, ready for JSON."""
        return {"bad": self.bad, "splits": {name: asdict(split) for name, split in self.splits.items()}}

    def lines(self) -> list[str]:
        """Give readable text; every problem is a line of its own, `file:line: reason`."""
        return [line for name, split in self.splits.items() for line in _split_lines(name, split)]


def check(splits: dict[str, Source], *, longest: int = 256) -> Report:
    """Read every split once; the one called "train" is what the others are held against."""
    readings = {name: _read(source, longest) for name, source in splits.items()}
    train = readings.get("train")
    return Report({name: _summary(one, None if one is train else train) for name, one in readings.items()})


class _Noted:
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


class _Reading:
    """What one pass over a split keeps: numbers and 8-byte hashes for each pair, never its text."""

    def __init__(self, longest: int):
        self.longest = longest
        self.faults = _Noted(_FAULTS_SHOWN)
        self.empty = _Noted()
        self.too_long = _Noted()
        self.words = {side: array("I") for side in SIDES}
        self.characters = {side: array("I") for side in SIDES}
        self.alphabets: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        self.source_hashes = array("Q")
        self.pair_hashes = array("Q")
        self.file_names: dict[str, int] = {}
        self.file_of = array("I")
        self.line_of = array("I")

    def take(self, pair: Pair) -> None:
        name, _, line = pair.place.rpartition(":")
        self.file_of.append(self.file_names.setdefault(name, len(self.file_names)))
        self.line_of.append(int(line))
        self.source_hashes.append(_hash(pair.source))
        self.pair_hashes.append(_hash(f"{pair.source}\n{pair.target}"))
        for side, text in zip(SIDES, (pair.source, pair.target), strict=True):
            self._measure(side, text)
        self._note(pair)

    def _measure(self, side: str, text: str) -> None:
        self.words[side].append(len(text.split()))
        self.characters[side].append(len(text))
        self.alphabets[side].update(text)

    def _note(self, pair: Pair) -> None:
        texts = dict(zip(SIDES, (pair.source, pair.target), strict=True))
        blank = [side for side, text in texts.items() if not text.strip()]
        if blank:
            self.empty.add(f"{pair.place}: the {' and the '.join(blank)} is empty")
        long = [f"the {side} has {words:,}" for side in SIDES if (words := self.words[side][-1]) > self.longest]
        if long:
            self.too_long.add(f"{pair.place}: {' and '.join(long)} words, more than {self.longest}")

    def place(self, index: int) -> str:
        return f"{list(self.file_names)[self.file_of[index]]}:{self.line_of[index]}"


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _read(source: Source, longest: int) -> _Reading:
    reading = _Reading(longest)
    try:
        for row in source.rows():
            if isinstance(row, Fault):
                reading.faults.add(str(row), row.rows)
            else:
                reading.take(row)
    except DataError as error:
        # a missing or damaged file is one more finding: the other splits are still worth a look
        reading.faults.add(str(error))
    return reading


def _summary(reading: _Reading, train: _Reading | None) -> SplitReport:
    return SplitReport(
        pairs=len(reading.pair_hashes),
        faults=reading.faults.finding(),
        words={side: _lengths(reading.words[side]) for side in SIDES},
        characters={side: _lengths(reading.characters[side]) for side in SIDES},
        empty=reading.empty.finding(),
        too_long=reading.too_long.finding(),
        odd_ratio=_odd_ratios(reading),
        repeated=_repeated(reading),
        sources_in_train=_shared(reading, train, "source"),
        pairs_in_train=_shared(reading, train, "pair"),
        unknown_characters={side: _unknown(reading, train, side) for side in SIDES},
    )


def _lengths(values: array) -> Lengths:
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


def _odd_ratios(reading: _Reading) -> Finding:
    """Find pairs whose source-to-target length is beyond three times the median either way."""
    source, target = (np.asarray(reading.characters[side], dtype=float) for side in SIDES)
    fit = np.flatnonzero((np.maximum(source, target) >= _RATIO_MIN_CHARACTERS) & (np.minimum(source, target) > 0))
    if not len(fit):
        return Finding(0, [])
    ratios = source[fit] / target[fit]
    usual = float(np.median(ratios))
    odd = np.flatnonzero((ratios > usual * _RATIO_FACTOR) | (ratios < usual / _RATIO_FACTOR))
    first = [
        f"{reading.place(int(fit[i]))}: {int(source[fit[i]])} characters against {int(target[fit[i]])}, "
        f"ratio {ratios[i]:.2f} where {usual:.2f} is usual"
        for i in odd[:_PLACES_SHOWN]
    ]
    return Finding(len(odd), first)


def _repeated(reading: _Reading) -> Finding:
    """Find pairs that stand earlier in the same split."""
    hashes = np.asarray(reading.pair_hashes)
    known, first_at = np.unique(hashes, return_index=True)
    original = first_at[np.searchsorted(known, hashes)]
    again = np.flatnonzero(original != np.arange(len(hashes)))
    shown = again[:_PLACES_SHOWN]
    first = [f"{reading.place(int(i))}: repeats {reading.place(int(original[i]))}" for i in shown]
    return Finding(len(again), first)


def _shared(reading: _Reading, train: _Reading | None, what: str) -> Finding:
    """Find rows whose source, or whole pair, also stands in train."""
    if train is None or not train.pair_hashes:
        return Finding(0, [])
    mine, theirs = (r.source_hashes if what == "source" else r.pair_hashes for r in (reading, train))
    hashes = np.asarray(mine)
    known, first_at = np.unique(np.asarray(theirs), return_index=True)
    nearest = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    seen = np.flatnonzero(known[nearest] == hashes)
    first = [
        f"{reading.place(int(i))}: the {what} is in train too, at {train.place(int(first_at[nearest[i]]))}"
        for i in seen[:_PLACES_SHOWN]
    ]
    return Finding(len(seen), first)


def _unknown(reading: _Reading, train: _Reading | None, side: str) -> dict[str, int]:
    """Count the characters that train never shows, the most frequent first."""
    if train is None:
        return {}
    known = train.alphabets[side]
    return {char: count for char, count in reading.alphabets[side].most_common() if char not in known}


def _split_lines(name: str, split: SplitReport) -> Iterator[str]:
    yield f"{name}: {split.pairs:,} pairs, {split.faults.count:,} faults"
    for what, by_side in (("words", split.words), ("characters", split.characters)):
        for side in SIDES:
            one = by_side[side]
            yield (
                f"  {side} {what}: {one.smallest} to {one.largest}, mean {one.mean:.1f}, "
                f"median {one.median:g}, 95% within {one.p95:g}"
            )
    for side in SIDES:
        yield from _bars(f"{side} words", split.words[side].histogram)
    findings = {
        "faults": split.faults,
        "empty": split.empty,
        "too long": split.too_long,
        "of odd length ratio": split.odd_ratio,
        "repeated": split.repeated,
        "with their source in train": split.sources_in_train,
        "wholly in train": split.pairs_in_train,
    }
    for title, finding in findings.items():
        yield from _finding_lines(title, finding)
    for side in SIDES:
        yield from _unknown_lines(side, split.unknown_characters[side])


def _bars(title: str, histogram: dict[str, int]) -> Iterator[str]:
    if histogram:
        yield f"  {title}, how many lines have how many:"
    tallest = max(histogram.values(), default=0)
    for label, count in histogram.items():
        bar = "#" * round(_BAR_WIDTH * count / tallest)
        yield f"    {label:>13} {count:>10,} {bar}".rstrip()


def _finding_lines(title: str, finding: Finding) -> Iterable[str]:
    if not finding.count:
        return []
    hidden = finding.count - len(finding.first)
    more = [f"  ... and {hidden:,} more"] if hidden else []
    return [f"  {title}: {finding.count:,}", *finding.first, *more]


def _unknown_lines(side: str, unknown: dict[str, int]) -> Iterable[str]:
    if not unknown:
        return []
    shown = ", ".join(f"{char!r} (U+{ord(char):04X}) {n:,}" for char, n in islice(unknown.items(), _CHARACTERS_SHOWN))
    more = ", ..." if len(unknown) > _CHARACTERS_SHOWN else ""
    return [f"  {side} characters that train never shows: {len(unknown):,}: {shown}{more}"]
