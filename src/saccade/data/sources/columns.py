"""One file, one word a line in columns, a blank line after each sentence (CoNLL-2003, CoNLL-U, two-column TSV)."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Literal

from saccade.data.sources.rows import Fault, Tagged, existing, read_lines
from saccade.errors import DataError

_SEPARATORS = {"tab": "\t", "space": " "}
_DOCUMENT = "-DOCSTART-"  # CoNLL-2003 begins each document with such a line
_CONLLU_COLUMNS = 10
_RANGE_OR_EMPTY_NODE = re.compile(r"[0-9]+[-.][0-9]+")  # of CoNLL-U: "3-4" spans words, "5.1" is not in the text


class Columns:
    """`word` and `label` are column numbers from 0; −1 is the last. Columns are parted by one tab, or by spaces.

    A line that starts with "#" is a comment unless it has as many columns as the other lines of its sentence (or, where
    all of them start so, as the first other line of the file): "#" may be a word. Lines that start with -DOCSTART- are
    left out, and in CoNLL-U (ten columns parted by tabs, the word not in the first) ranges such as 3-4 and empty nodes
    such as 5.1. An empty label is none.
    """

    def __init__(
        self, folder: Path, *, file: str, word: int = 0, label: int = -1, separator: Literal["tab", "space"] = "tab"
    ):
        if word == label:
            raise DataError(f"label: is column {label}, and so is 'word'; name two columns")
        self.folder = folder
        self.file = file
        self.word = word
        self.label = label
        self.separator = separator
        self.needed = max(_needed(word), _needed(label))

    def files(self) -> dict[str, Path]:
        """Give the one path."""
        return {"file": existing(self.folder, self.file, "file")}

    def rows(self) -> Iterator[Tagged | Fault]:
        """Read sentence by sentence; a bad line makes one Fault of its whole sentence."""
        path = self.files()["file"]
        usual = self._usual_width(path)
        for lines in blocks(path, self.file):
            row = self._row(lines, usual)
            if row is not None:
                yield row

    def _usual_width(self, path: Path) -> int:
        """Count the columns of the first line that is surely a word; 0 if there is none."""
        for line in read_lines(path, self.file):
            if isinstance(line, str) and not line.startswith(("#", _DOCUMENT)):
                columns = self._split(line)
                if not self._why_not(columns, len(columns)):
                    return len(columns)
        return 0

    def _split(self, line: str) -> list[str]:
        columns = line.split(_SEPARATORS[self.separator])
        return columns if self.separator == "tab" else [column for column in columns if column]

    def _row(self, lines: Iterator[tuple[int, str | Fault]], usual: int) -> Tagged | Fault | None:
        """Make a sentence of its lines; None if they are all comments."""
        held: list[tuple[int, list[str]]] = []
        width = 0
        for number, line in lines:
            if isinstance(line, Fault):
                return line
            if line.startswith(_DOCUMENT):
                continue
            columns = self._split(line)
            held.append((number, columns))
            if not line.startswith("#"):
                width = width or len(columns)
                if reason := self._why_not(columns, width):
                    return Fault(f"{self.file}:{number}", reason)
        return self._tagged([word for word in held if _is_word(word[1], width or usual)])

    def _tagged(self, words: list[tuple[int, list[str]]]) -> Tagged | Fault | None:
        for number, columns in words:
            if reason := self._why_not(columns, len(columns)):
                return Fault(f"{self.file}:{number}", reason)
        words = [(number, columns) for number, columns in words if not self._beside_the_text(columns)]
        if not words:
            return None
        texts = tuple(columns[self.word] for _, columns in words)
        return Tagged(texts, tuple(columns[self.label] for _, columns in words), f"{self.file}:{words[0][0]}")

    def _beside_the_text(self, columns: list[str]) -> bool:
        conllu = self.separator == "tab" and len(columns) == _CONLLU_COLUMNS and self.word % _CONLLU_COLUMNS != 0
        return conllu and _RANGE_OR_EMPTY_NODE.fullmatch(columns[0]) is not None

    def _why_not(self, columns: list[str], width: int) -> str:
        """Say why a line cannot be a word of a sentence so many columns wide; "" if it can."""
        have = len(columns)
        advice = f"are they parted by {self.separator}s, as 'separator' says?"
        if have < self.needed:
            return f"too few columns: {have} of the {self.needed} needed; {advice}"
        if have != width:
            return f"has {have} columns where its sentence began with {width}; give all its lines the same"
        if self.word % have == self.label % have:
            return f"too few columns: of {have}, 'word' and 'label' are the same one; {advice}"
        if not columns[self.word].strip():
            return "the word is empty; write one, or leave the line blank to end the sentence"
        return ""


def _needed(column: int) -> int:
    return column + 1 if column >= 0 else -column


def _is_word(columns: list[str], width: int) -> bool:
    return not columns[0].startswith("#") or len(columns) == width


def blocks(path: Path, name: str) -> Iterator[Iterator[tuple[int, str | Fault]]]:
    """Give the numbered lines between blank ones. None is held: what is not taken of a block is passed over."""
    for blank, lines in groupby(enumerate(read_lines(path, name), start=1), key=lambda numbered: _blank(numbered[1])):
        if not blank:
            yield lines


def _blank(line: str | Fault) -> bool:
    return isinstance(line, str) and not line.strip(" \t")
