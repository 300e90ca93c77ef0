"""One file, one pair a line, columns parted by tabs."""

from collections.abc import Iterator
from pathlib import Path

from saccade.data.sources.rows import Fault, Pair, existing, read_lines
from saccade.errors import DataError


class Tsv:
    """`src` and `tgt` are column numbers from 0. Nothing is quoted, so a lone `"` is text."""

    def __init__(self, folder: Path, *, file: str, src: int = 0, tgt: int = 1, header: bool = False):
        for option, column in (("src", src), ("tgt", tgt)):
            if column < 0:
                raise DataError(f"{option}: columns count from 0, got {column}")
        self.folder = folder
        self.file = file
        self.src = src
        self.tgt = tgt
        self.header = header

    def files(self) -> dict[str, Path]:
        """Give the one path."""
        return {"file": existing(self.folder, self.file, "file")}

    def rows(self) -> Iterator[Pair | Fault]:
        """Read each line after the header, if there is one."""
        for number, line in enumerate(read_lines(self.files()["file"], self.file), start=1):
            if isinstance(line, Fault):
                yield line
            elif number > 1 or not self.header:
                yield self._row(line, f"{self.file}:{number}")

    def _row(self, line: str, place: str) -> Pair | Fault:
        columns = line.split("\t")
        needed = max(self.src, self.tgt) + 1
        if len(columns) < needed:
            return Fault(place, f"too few columns: {len(columns)} of the {needed} needed; are they parted by tabs?")
        return Pair(columns[self.src], columns[self.tgt], place)
