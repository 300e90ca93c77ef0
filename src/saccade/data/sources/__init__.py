"""Sources of rows: one module for each file format, and the table of all of them."""

from dataclasses import dataclass

from saccade.data.sources.columns import Columns
from saccade.data.sources.generated import Copy, Dates, Reverse, Sort
from saccade.data.sources.jsonl import Jsonl
from saccade.data.sources.labeled import LabeledLines
from saccade.data.sources.none import NoSource
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.rows import BadRow, Pair, Row, Series, Source, Tagged
from saccade.data.sources.series import LabeledSeries
from saccade.data.sources.tsv import Tsv
from saccade.errors import DataError

__all__ = ["SOURCES", "BadRow", "Series", "Loaded", "NoSource", "Pair", "Row", "Source", "Tagged", "load_rows"]

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

_BAD_ROWS_LISTED = 10


@dataclass(frozen=True, slots=True)
class Loaded:
    """The usable rows of a source, and the number of rows that were left out."""

    rows: list[Row]
    bad_rows: int


def load_rows(source: Source, *, skip_bad: bool) -> Loaded:
    """Read a whole source. With `skip_bad`, bad rows are left out and counted; without, a DataError lists them."""
    rows: list[Row] = []
    listed: list[BadRow] = []
    bad_rows = 0
    for row in source.rows():
        if not isinstance(row, BadRow):
            rows.append(row)
            continue
        bad_rows += row.rows
        if len(listed) < _BAD_ROWS_LISTED:
            listed.append(row)
    if bad_rows and not skip_bad:
        raise DataError(_error_message(listed, bad_rows, bad_rows + len(rows)))
    return Loaded(rows, bad_rows)


def _error_message(listed: list[BadRow], bad_rows: int, rows: int) -> str:
    lines = [str(bad_row) for bad_row in listed]
    if bad_rows > len(listed):
        lines.append(f"... and {bad_rows - len(listed):,} more")
    lines.append(f"bad rows: {bad_rows:,} of {rows:,}; correct them, or set `data.skip_bad = true` to leave them out")
    return "\n".join(lines)
