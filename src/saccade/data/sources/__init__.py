"""Sources of rows: one module for each file format, and the table of all of them."""

from dataclasses import dataclass

from saccade.data.sources.columns import Columns
from saccade.data.sources.generated import Copy, Dates, Reverse, Sort
from saccade.data.sources.jsonl import Jsonl
from saccade.data.sources.labeled import LabeledLines
from saccade.data.sources.none import NoSource
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.rows import Fault, Frames, Pair, Row, Source, Tagged
from saccade.data.sources.series import LabeledSeries
from saccade.data.sources.tsv import Tsv
from saccade.errors import DataError

__all__ = ["SOURCES", "Fault", "Frames", "Loaded", "NoSource", "Pair", "Row", "Source", "Tagged", "load"]

SOURCES: dict[str, type] = {
    "pairs": Pairs,
    "tsv": Tsv,
    "jsonl": Jsonl,
    "labeled": LabeledLines,
    "columns": Columns,
    "series": LabeledSeries,
    "dates": Dates,
    "copy": Copy,
    "reverse": Reverse,
    "sort": Sort,
    "none": NoSource,
}

_FAULTS_LISTED = 10


@dataclass(frozen=True, slots=True)
class Loaded:
    """The usable rows of a source, and the number of rows that were left out."""

    rows: list[Row]
    faults: int


def load(source: Source, *, skip_bad: bool) -> Loaded:
    """Read a whole source. With `skip_bad`, bad rows are left out and counted; without, a DataError lists them."""
    rows: list[Row] = []
    listed: list[Fault] = []
    faults = 0
    for row in source.rows():
        if not isinstance(row, Fault):
            rows.append(row)
            continue
        faults += row.rows
        if len(listed) < _FAULTS_LISTED:
            listed.append(row)
    if faults and not skip_bad:
        raise DataError(_error_message(listed, faults, faults + len(rows)))
    return Loaded(rows, faults)


def _error_message(listed: list[Fault], faults: int, rows: int) -> str:
    lines = [str(fault) for fault in listed]
    if faults > len(listed):
        lines.append(f"... and {faults - len(listed):,} more")
    lines.append(f"bad rows: {faults:,} of {rows:,}; correct them, or set `data.skip_bad = true` to leave them out")
    return "\n".join(lines)
