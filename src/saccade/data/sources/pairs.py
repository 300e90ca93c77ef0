"""Two files, one sentence a line, line n of one the translation of line n of the other (Moses, OPUS)."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from saccade.data.sources.rows import Fault, Pair, existing, read_lines


class Pairs:
    """`src` and `tgt` name two text files of equal length, plain or .gz."""

    def __init__(self, folder: Path, *, src: str, tgt: str):
        self.folder = folder
        self.src = src
        self.tgt = tgt

    def files(self) -> dict[str, Path]:
        """Give the two paths."""
        return {"src": existing(self.folder, self.src, "src"), "tgt": existing(self.folder, self.tgt, "tgt")}

    def rows(self) -> Iterator[Pair | Fault]:
        """Walk both files in step; a row is one Fault even if both of its sides are bad."""
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
                yield _joined(source, target, f"{self.src}:{number}")


def _joined(source: str | Fault, target: str | Fault, place: str) -> Pair | Fault:
    if isinstance(source, Fault) and isinstance(target, Fault):
        return Fault(source.place, f"{source.reason}; also {target}")
    if isinstance(source, Fault):
        return source
    if isinstance(target, Fault):
        return target
    return Pair(source, target, place)


def _unpaired(longer: str, number: int, rest: Iterator[str | Fault], shorter: str) -> Fault:
    """Read the longer file to its end, so that the message can give both counts."""
    total = number + sum(1 for _ in rest)
    counts = f"{shorter} has {number - 1} lines but {longer} has {total}"
    reason = f"has no partner: {counts}; see from which line they are out of step"
    return Fault(f"{longer}:{number}", reason, total - number + 1)
