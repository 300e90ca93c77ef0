"""One file with one pair per line, in columns separated by tabs."""

from collections.abc import Iterator
from pathlib import Path

from saccade.data.sources.rows import BadRow, Pair, existing, read_lines
from saccade.errors import DataError


class Tsv:
    """`src` and `tgt` are column numbers from 0. There is no quoting: `"` is an ordinary character."""

    def __init__(self, folder: Path, *, file: str, src: int = 0, tgt: int = 1, header: bool = False):
        for option, column in (("src", src), ("tgt", tgt)):
            if column < 0:
                raise DataError(f"{option}: column numbers start at 0, got {column}")
        self.folder = folder
        self.file = file
        self.src = src
        self.tgt = tgt
        self.header = header

    def files(self) -> dict[str, Path]:
        """The path of the file."""
        return {"file": existing(self.folder, self.file, "file")}

    def location(self, line: int) -> str:
        """The location of the pair in a line."""
        return f"{self.file}:{line}"

    def rows(self) -> Iterator[Pair | BadRow]:
        """Read each line, without the header if there is one."""
        for number, line in enumerate(read_lines(self.files()["file"], self.file), start=1):
            if isinstance(line, BadRow):
                yield line
            elif number > 1 or not self.header:
                yield self._row(line, self.location(number))

    def _row(self, line: str, location: str) -> Pair | BadRow:
        columns = line.split("\t")
        needed = max(self.src, self.tgt) + 1
        if len(columns) < needed:
            return BadRow(
                location, f"too few columns: expected at least {needed}, got {len(columns)}; separate them by tabs"
            )
        return Pair(columns[self.src], columns[self.tgt], location)
