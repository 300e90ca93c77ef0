"""One file, one text a line with its label before it (TREC, fastText)."""

import re
from collections.abc import Iterator
from pathlib import Path

from saccade.data.sources.rows import Fault, Pair, existing, read_lines

_FASTTEXT = "__label__"


class LabeledLines:
    """`LABEL text …` a line; a label ends at the first space or tab. The `__label__` of fastText is taken off."""

    def __init__(self, folder: Path, *, file: str):
        self.folder = folder
        self.file = file

    def files(self) -> dict[str, Path]:
        """Give the one path."""
        return {"file": existing(self.folder, self.file, "file")}

    def rows(self) -> Iterator[Pair | Fault]:
        """Part each line into its text, the source, and its label, the target."""
        for number, line in enumerate(read_lines(self.files()["file"], self.file), start=1):
            yield line if isinstance(line, Fault) else _row(line, f"{self.file}:{number}")


def _row(line: str, place: str) -> Pair | Fault:
    first = re.split("[ \t]", line, maxsplit=1)[0]
    label, text = first.removeprefix(_FASTTEXT), line[len(first) :].strip(" \t")
    if not line.strip():
        return Fault(place, "the line is empty; write a label and a text, or take it out")
    if not label:
        return Fault(place, "has no label; begin the line with it, and part it from the text by a space")
    if not text.strip():
        return Fault(place, "has no text after its label; write one, or take the line out")
    if first.startswith(_FASTTEXT) and text.startswith(_FASTTEXT):
        return Fault(place, "has more than one label; keep one")
    return Pair(text, label, place)
