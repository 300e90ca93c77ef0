"""Look over the data before training: faults, lengths, repeats, leaks between splits, unseen characters and labels."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice

import numpy as np

from saccade.data.check_labels import (
    Finding,
    FindingCounter,
    LabelCounts,
    LabelTally,
    Lengths,
    SeriesReading,
    SeriesReport,
    digest,
    fault_counter,
    finding_lines,
    histogram_lines,
    label_lines,
    lengths_line,
    lengths_of,
    repeated,
    series_lines,
    shared,
)
from saccade.data.sources.rows import Fault, Frames, Pair, Source, Tagged
from saccade.data.sources.series import shared_groups
from saccade.errors import DataError

__all__ = ["Finding", "LabelCounts", "Lengths", "Report", "SeriesReport", "SplitReport", "check"]

SIDES = ("source", "target")
_PLACES_SHOWN = 3
_CHARACTERS_SHOWN = 20
_RATIO_FACTOR = 3.0
_RATIO_MIN_CHARACTERS = 10


@dataclass(frozen=True, slots=True)
class SplitReport:
    """All that was found in one split of texts; dicts with two keys are by side, source and target. Where targets are
    `labels`, these are counted, and nothing is said of their characters and ratios."""

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
    labels: LabelCounts | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What `check` found in each split."""

    splits: dict[str, SplitReport | SeriesReport]
    leaks: list[str]

    @property
    def bad(self) -> bool:
        """Tell whether any row cannot be read at all, or a group stands in two splits."""
        return bool(self.leaks) or any(split.faults.count for split in self.splits.values())

    def plain(self) -> dict[str, object]:
        """Give dicts, lists, strings and numbers only, ready for JSON."""
        plain: dict[str, object] = {"bad": self.bad}
        plain["splits"] = {name: _plain(split) for name, split in self.splits.items()}
        if any(isinstance(split, SeriesReport) for split in self.splits.values()):
            plain["leaks"] = self.leaks
        return plain

    def lines(self) -> list[str]:
        """Give readable text; every problem is a line of its own, `file:line: reason`."""
        found = [line for name, split in self.splits.items() for line in _lines(name, split)]
        return [*found, f"groups in two splits: {len(self.leaks):,}", *self.leaks] if self.leaks else found


def _plain(split: SplitReport | SeriesReport) -> dict[str, object]:
    return {key: value for key, value in asdict(split).items() if value is not None}


def check(splits: dict[str, Source], *, longest: int = 256, labels: bool = False) -> Report:
    """Read every split once; the one called "train" is what the others are held against. `labels`: the targets of
    pairs are not texts but labels."""
    readings = {name: _read(source, longest, labels) for name, source in splits.items()}
    train = readings.get("train")
    groups = {name: one.groups for name, one in readings.items() if isinstance(one, SeriesReading)}
    reports = {name: _report(one, None if one is train else train) for name, one in readings.items()}
    return Report(reports, shared_groups(groups))


class _Reading:
    """What one pass over a split keeps: numbers and 8-byte hashes for each pair, never its text."""

    def __init__(self, longest: int, labels: bool):
        self.longest = longest
        self.tally = LabelTally() if labels else None
        self.faults = fault_counter()
        self.empty = FindingCounter()
        self.too_long = FindingCounter()
        self.words = {side: array("I") for side in SIDES}
        self.characters = {side: array("I") for side in SIDES}
        self.alphabets: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        self.source_hashes = array("Q")
        self.pair_hashes = array("Q")
        self.file_names: dict[str, int] = {}
        self.file_of = array("I")
        self.line_of = array("I")

    def take(self, row: Pair | Tagged) -> None:
        name, _, line = row.location.rpartition(":")
        self.file_of.append(self.file_names.setdefault(name, len(self.file_names)))
        self.line_of.append(int(line))
        source, target = _text(row.source), _text(row.target)
        self.source_hashes.append(digest(source.encode()))
        self.pair_hashes.append(digest(f"{source}\n{target}".encode()))
        self._measure("source", source, row.source)
        self._measure("target", target, row.target)
        self._note(row.location, {"source": source, "target": target})
        if self.tally:
            self.tally.take(row)

    def _measure(self, side: str, text: str, words: str | tuple[str, ...]) -> None:
        self.words[side].append(len(words.split() if isinstance(words, str) else words))
        self.characters[side].append(len(text))
        self.alphabets[side].update(text)

    def _note(self, place: str, texts: dict[str, str]) -> None:
        blank = [side for side, text in texts.items() if not text.strip()]
        if blank:
            self.empty.add(f"{place}: the {' and the '.join(blank)} is empty")
        sides = ("source",) if self.tally else SIDES
        long = [f"the {side} has {words:,}" for side in sides if (words := self.words[side][-1]) > self.longest]
        if long:
            self.too_long.add(f"{place}: {' and '.join(long)} words, more than {self.longest}")

    def place(self, index: int) -> str:
        return f"{list(self.file_names)[self.file_of[index]]}:{self.line_of[index]}"


def _text(side: str | tuple[str, ...]) -> str:
    return side if isinstance(side, str) else " ".join(side)


def _read(source: Source, longest: int, labels: bool = False) -> _Reading | SeriesReading:
    reading: _Reading | SeriesReading | None = None
    faults = fault_counter()
    try:
        for row in source.rows():
            if isinstance(row, Fault):
                faults.add(str(row), row.rows)
            elif isinstance(row, Frames):
                reading = reading if isinstance(reading, SeriesReading) else SeriesReading(longest)
                reading.take(row)
            else:
                tagged = isinstance(row, Tagged)
                reading = reading if isinstance(reading, _Reading) else _Reading(longest, labels or tagged)
                reading.take(row)
    except DataError as error:
        # a missing or damaged file is one more finding: the other splits are still worth a look
        faults.add(str(error))
    reading = reading or _Reading(longest, labels)
    reading.faults = faults
    return reading


def _report(reading: _Reading | SeriesReading, train: _Reading | SeriesReading | None) -> SplitReport | SeriesReport:
    if isinstance(reading, SeriesReading):
        return reading.summary(train if isinstance(train, SeriesReading) else None)
    return _summary(reading, train if isinstance(train, _Reading) else None)


def _summary(reading: _Reading, train: _Reading | None) -> SplitReport:
    return SplitReport(
        pairs=len(reading.pair_hashes),
        faults=reading.faults.finding(),
        words={side: lengths_of(reading.words[side]) for side in SIDES},
        characters={side: lengths_of(reading.characters[side]) for side in SIDES},
        empty=reading.empty.finding(),
        too_long=reading.too_long.finding(),
        odd_ratio=Finding(0, []) if reading.tally else _odd_ratios(reading),
        repeated=repeated(reading.pair_hashes, reading.place),
        sources_in_train=_shared(reading, train, "source"),
        pairs_in_train=_shared(reading, train, "pair"),
        unknown_characters={side: _unknown(reading, train, side) for side in SIDES},
        labels=reading.tally.labels(train.tally if train else None) if reading.tally else None,
    )


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


def _shared(reading: _Reading, train: _Reading | None, what: str) -> Finding:
    """Find rows whose source, or whole pair, also stands in train."""
    if train is None:
        return Finding(0, [])
    mine, theirs = (r.source_hashes if what == "source" else r.pair_hashes for r in (reading, train))
    return shared(what, mine, reading.place, theirs, train.place)


def _unknown(reading: _Reading, train: _Reading | None, side: str) -> dict[str, int]:
    """Count the characters that train never shows, the most frequent first."""
    if train is None or (reading.tally and side == "target"):
        return {}
    known = train.alphabets[side]
    return {char: count for char, count in reading.alphabets[side].most_common() if char not in known}


def _lines(name: str, split: SplitReport | SeriesReport) -> Iterator[str]:
    return series_lines(name, split) if isinstance(split, SeriesReport) else _split_lines(name, split)


def _split_lines(name: str, split: SplitReport) -> Iterator[str]:
    sides = ("source",) if split.labels else SIDES
    yield f"{name}: {split.pairs:,} {'rows' if split.labels else 'pairs'}, {split.faults.count:,} faults"
    for what, by_side in (("words", split.words), ("characters", split.characters)):
        for side in sides:
            yield lengths_line(f"{side} {what}", by_side[side])
    for side in sides:
        yield from histogram_lines(f"{side} words, how many lines", split.words[side].histogram)
    if split.labels:
        yield from label_lines(split.labels)
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
        yield from finding_lines(title, finding)
    for side in SIDES:
        yield from _unknown_lines(side, split.unknown_characters[side])


def _unknown_lines(side: str, unknown: dict[str, int]) -> Iterable[str]:
    if not unknown:
        return []
    shown = ", ".join(f"{char!r} (U+{ord(char):04X}) {n:,}" for char, n in islice(unknown.items(), _CHARACTERS_SHOWN))
    more = ", ..." if len(unknown) > _CHARACTERS_SHOWN else ""
    return [f"  {side} characters that train never shows: {len(unknown):,}: {shown}{more}"]
