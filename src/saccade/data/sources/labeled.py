"""One file with one labeled text per line, label first (TREC, fastText)."""

import re
from collections.abc import Iterator
from pathlib import Path

from saccade.data.sources.rows import BadRow, Pair, existing, read_lines

_FASTTEXT_PREFIX = "__label__"


class LabeledLines:
    """Lines `LABEL text`. The label ends at the first space or tab; the prefix `__label__` of fastText is removed."""

    def __init__(self, folder: Path, *, file: str):
        self.folder = folder
        self.file = file

    def files(self) -> dict[str, Path]:
        """The path of the file."""
        return {"file": existing(self.folder, self.file, "file")}

    def location(self, line: int) -> str:
        """The location of the pair in a line."""
        return f"{self.file}:{line}"

    def rows(self) -> Iterator[Pair | BadRow]:
        """Split each line into its text (the source) and its label (the target)."""
        for number, line in enumerate(read_lines(self.files()["file"], self.file), start=1):
            yield line if isinstance(line, BadRow) else _row(line, self.location(number))


def _row(line: str, location: str) -> Pair | BadRow:
    first = re.split("[ \t]", line, maxsplit=1)[0]
    label, text = first.removeprefix(_FASTTEXT_PREFIX), line[len(first) :].strip(" \t")
    if not line.strip():
        return BadRow(location, "the line is empty; write a label and a text, or delete the line")
    if not label:
        return BadRow(location, "has no label; start the line with a label and a space")
    if not text.strip():
        return BadRow(location, "has no text after its label; add one, or delete the line")
    if first.startswith(_FASTTEXT_PREFIX) and text.startswith(_FASTTEXT_PREFIX):
        return BadRow(location, "has more than one label; keep only one")
    return Pair(text, label, location)
