"""No data: the default of data.train, data.dev and data.test. Training refuses a recipe without the first two."""

from collections.abc import Iterator
from pathlib import Path

from saccade.data.sources.rows import BadRow, Pair


class NoSource:
    """A source without rows."""

    def files(self) -> dict[str, Path]:
        return {}

    def rows(self) -> Iterator[Pair | BadRow]:
        return iter(())
