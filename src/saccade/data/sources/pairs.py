"""Two files with one sentence per line; line n of one is the translation of line n of the other (Moses, OPUS)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from saccade.data.links import check_range, parse
from saccade.data.sources.rows import BadRow, Pair, existing, read_lines
from saccade.errors import DataError, plural


class Pairs:
    """`src` and `tgt` are text files with the same number of lines, plain or .gz. The optional third file `links` has
    the word alignment of each pair, such as `0-0 1-2` (source-target, counted from 0)."""

    def __init__(self, folder: Path, *, src: str, tgt: str, links: str = ""):
        self.folder = folder
        self.src = src
        self.tgt = tgt
        self.links = links

    def files(self) -> dict[str, Path]:
        """The paths of the two or three files, by option."""
        names = {"src": self.src, "tgt": self.tgt} | ({"links": self.links} if self.links else {})
        return {option: existing(self.folder, name, option) for option, name in names.items()}

    def location(self, line: int) -> str:
        """The location of the pair in a line."""
        return f"{self.src}:{line}"

    def rows(self) -> Iterator[Pair | BadRow]:
        """Read the files in parallel. A row with several problems is one BadRow."""
        return self._linked(self._pairs()) if self.links else self._pairs()

    def _linked(self, pairs: Iterator[Pair | BadRow]) -> Iterator[Pair | BadRow]:
        """The pairs with their links. If one file has more lines than the other, the surplus lines are a BadRow."""
        lines = read_lines(self.files()["links"], self.links)
        number = 0
        for number, pair in enumerate(pairs, start=1):
            line = next(lines, None)
            if isinstance(pair, BadRow):
                yield pair
            elif line is None:
                yield _unpaired(self.src, number, pairs, self.links)
            else:
                yield line if isinstance(line, BadRow) else _with_links(pair, line, f"{self.links}:{number}")
        if next(lines, None) is not None:
            yield _unpaired(self.links, number + 1, lines, self.src)

    def _pairs(self) -> Iterator[Pair | BadRow]:
        files = self.files()
        sources = read_lines(files["src"], self.src)
        targets = read_lines(files["tgt"], self.tgt)
        for number in count(1):
            source, target = next(sources, None), next(targets, None)
            if source is None and target is None:
                return
            if target is None:
                yield _unpaired(self.src, number, sources, self.tgt)
            elif source is None:
                yield _unpaired(self.tgt, number, targets, self.src)
            else:
                yield _pair(source, target, self.location(number))


def _pair(source: str | BadRow, target: str | BadRow, location: str) -> Pair | BadRow:
    if isinstance(source, BadRow) and isinstance(target, BadRow):
        return BadRow(source.location, f"{source.reason}; also {target}")
    if isinstance(source, BadRow):
        return source
    if isinstance(target, BadRow):
        return target
    return Pair(source, target, location)


def _with_links(pair: Pair, line: str, location: str) -> Pair | BadRow:
    try:
        links = parse(line, location)
        check_range(links.possible, len(pair.source.split()), len(pair.target.split()), location)
    except DataError as error:
        return BadRow(location, str(error).removeprefix(f"{location}: "))
    return replace(pair, links=links)


def _unpaired(longer: str, number: int, rest: Iterator[object], shorter: str) -> BadRow:
    """The BadRow of the surplus lines of the longer file, which is read to its end for the message."""
    total = number + sum(1 for _ in rest)
    counts = f"{shorter} has {plural(number - 1, 'line')} but {longer} has {total:,}"
    reason = f"has no counterpart: {counts}; find the line from which the files are misaligned"
    return BadRow(f"{longer}:{number}", reason, total - number + 1)
