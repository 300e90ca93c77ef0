"""Where rows come from (texts, words or frames, and what to say of them): one file a format, and their table."""

from dataclasses import dataclass

from saccade.data.generated import Copy, Dates, Reverse, Sort
from saccade.data.sources.columns import Columns
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

_FAULTS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Loaded:
    """The usable rows of a source, and how many were left out."""

    rows: list[Row]
    faults: int


def load(source: Source, *, skip_bad: bool) -> Loaded:
    """Read a whole source; bad rows are left out and counted if `skip_bad`, else a DataError lists them."""
    rows: list[Row] = []
    shown: list[Fault] = []
    faults = 0
    for row in source.rows():
        if not isinstance(row, Fault):
            rows.append(row)
            continue
        faults += row.rows
        if len(shown) < _FAULTS_SHOWN:
            shown.append(row)
    if faults and not skip_bad:
        raise DataError(_listing(shown, faults, faults + len(rows)))
    return Loaded(rows, faults)


def _listing(shown: list[Fault], faults: int, rows: int) -> str:
    lines = [str(fault) for fault in shown]
    if faults > len(shown):
        lines.append(f"... and {faults - len(shown):,} more")
    lines.append(f"{faults:,} of {rows:,} rows are bad; mend them, or set `data.skip_bad = true` to leave them out")
    return "\n".join(lines)
