"""Sources of rows: one module for each file format, and the table of all of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from saccade.data.sources.columns import Columns
from saccade.data.sources.generated import Copy, Dates, Reverse, Sort
from saccade.data.sources.jsonl import Jsonl
from saccade.data.sources.labeled import LabeledLines
from saccade.data.sources.none import NoSource
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.rows import BadRow, LineSource, Pair, Row, Series, Source, Tagged
from saccade.data.sources.series import LabeledSeries
from saccade.data.sources.tsv import Tsv
from saccade.errors import DataError

__all__ = [
    "SOURCES",
    "BadRow",
    "LineSource",
    "Loaded",
    "NoSource",
    "Pair",
    "Row",
    "RowStream",
    "Series",
    "Source",
    "Tagged",
    "load_rows",
]

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
    """Read a whole source into memory."""
    stream = RowStream(source, skip_bad=skip_bad)
    return Loaded([*stream], stream.bad_rows)


class RowStream:
    """The usable rows of a source, read again whenever they are iterated, so that they need no memory. With `skip_bad`,
    bad rows are left out; without, a DataError lists them at the end. `bad_rows` is their number after an iteration."""

    def __init__(self, source: Source, *, skip_bad: bool):
        self.source, self.skip_bad = source, skip_bad
        self.bad_rows = 0

    def __iter__(self) -> Iterator[Row]:
        listed: list[BadRow] = []
        bad_rows = rows = 0
        for row in self.source.rows():
            if not isinstance(row, BadRow):
                rows += 1
                yield row
                continue
            bad_rows += row.rows
            if len(listed) < _BAD_ROWS_LISTED:
                listed.append(row)
        self.bad_rows = bad_rows
        if bad_rows and not self.skip_bad:
            raise DataError(_error_message(listed, bad_rows, bad_rows + rows))


def _error_message(listed: list[BadRow], bad_rows: int, rows: int) -> str:
    lines = [str(bad_row) for bad_row in listed]
    if bad_rows > len(listed):
        lines.append(f"... and {bad_rows - len(listed):,} more")
    lines.append(f"bad rows: {bad_rows:,} of {rows:,}; correct them, or set `data.skip_bad = true` to leave them out")
    return "\n".join(lines)
