"""`data check` of numeric series."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile, islice

import numpy as np

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
from saccade.data.sources.rows import Series
from saccade.errors import plural

_GROUPS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """The results for one split of numeric series. Lengths are in frames."""

    series: int
    frames: int
    width: int
    bad_rows: Finding
    lengths: Lengths
    labels: LabelCounts
    groups: dict[str, int]
    too_long: Finding
    other_width: Finding
    repeated: Finding
    series_in_train: Finding


class SeriesStatistics:
    """The statistics of one split of series. Of each series it keeps the length, the location and an 8-byte hash."""

    def __init__(self, longest: int):
        self.longest = longest
        self.bad_rows = bad_row_counter()
        self.too_long = FindingCounter()
        self.lengths = array("I")
        self.digests = array("Q")
        self.locations: list[str] = []
        self.groups: Counter[str] = Counter()
        self.labels = LabelCounter()
        self.width = 0

    def add(self, row: Series) -> None:
        frames, self.width = row.source.shape
        self.lengths.append(frames)
        self.digests.append(digest(np.ascontiguousarray(row.source).tobytes()))
        self.locations.append(row.location)
        self.labels.add(row)
        if row.group:
            self.groups[row.group] += 1
        if frames > self.longest:
            self.too_long.add(
                f"{row.location}: has {frames:,} frames, more than data.longest = {self.longest:,}; "
                "tagging cuts it into windows, and classification needs the option 'window'"
            )

    def summary(self, train: "SeriesStatistics | None") -> SeriesReport:
        return SeriesReport(
            series=len(self.lengths),
            frames=sum(self.lengths),
            width=self.width,
            bad_rows=self.bad_rows.finding(),
            lengths=lengths_of(Counter(self.lengths)),
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
        f"{plural(split.bad_rows.count, 'bad row')}"
    )
    yield lengths_line("frames", split.lengths)
    bins = dropwhile(lambda item: not item[1], split.lengths.histogram.items())  # the first bins are often empty
    yield from histogram_lines("series by number of frames", dict(bins))
    yield from label_lines(split.labels)
    if split.groups:
        groups = ", ".join(islice(split.groups, _GROUPS_SHOWN))
        yield f"  groups: {len(split.groups):,}: {groups}" + (", ..." if len(split.groups) > _GROUPS_SHOWN else "")
    findings = {
        "bad rows": split.bad_rows,
        "too long": split.too_long,
        "with another width than train": split.other_width,
        "repeated": split.repeated,
        "also in train": split.series_in_train,
    }
    for title, finding in findings.items():
        yield from finding_lines(title, finding)
