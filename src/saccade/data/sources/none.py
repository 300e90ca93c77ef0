"""No data: the default of an optional split."""

from collections.abc import Iterator
from pathlib import Path

from saccade.data.sources.rows import Fault, Pair


class NoSource:
    """A source without rows."""

    def files(self) -> dict[str, Path]:
        return {}

    def rows(self) -> Iterator[Pair | Fault]:
        return iter(())
