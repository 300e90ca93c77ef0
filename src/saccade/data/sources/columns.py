"""One file with one word per line in columns, and a blank line after each sentence: CoNLL-2003, CoNLL-U, TSV."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Literal

from saccade.data.sources.rows import BadRow, Tagged, existing, read_lines
from saccade.errors import DataError

_SEPARATORS = {"tab": "\t", "space": " "}
_DOCUMENT_START = "-DOCSTART-"  # CoNLL-2003: the first line of each document
_CONLLU_COLUMNS = 10
_RANGE_OR_EMPTY_NODE = re.compile(r"[0-9]+[-.][0-9]+")  # CoNLL-U: "3-4" spans several words; "5.1" is not in the text


class Columns:
    """`word` and `label` are column numbers from 0; −1 is the last. The separator is one tab, or any number of spaces.

    A line that starts with "#" is a comment unless it has as many columns as the other lines of its sentence, because
    "#" may be a word. If all lines of a sentence start with "#", they are compared with the first line of the file that
    does not. Lines that start with -DOCSTART- are skipped. In CoNLL-U (ten columns separated by tabs, and the word not
    in the first), ranges such as 3-4 and empty nodes such as 5.1 are skipped too. An empty label means no label.
    """

    def __init__(
        self, folder: Path, *, file: str, word: int = 0, label: int = -1, separator: Literal["tab", "space"] = "tab"
    ):
        if word == label:
            raise DataError(f"label: is the same column as 'word' ({label}); give two different columns")
        self.folder = folder
        self.file = file
        self.word = word
        self.label = label
        self.separator = separator
        self.min_columns = max(_min_columns(word), _min_columns(label))

    def files(self) -> dict[str, Path]:
        """The path of the file."""
        return {"file": existing(self.folder, self.file, "file")}

    def rows(self) -> Iterator[Tagged | BadRow]:
        """Read sentence by sentence. A bad line makes its whole sentence one BadRow."""
        path = self.files()["file"]
        file_width = self._file_width(path)
        for lines in blocks(path, self.file):
            row = self._row(lines, file_width)
            if row is not None:
                yield row

    def _file_width(self, path: Path) -> int:
        """The number of columns of the first line that is certainly a word; 0 if there is none."""
        for line in read_lines(path, self.file):
            if isinstance(line, str) and not line.startswith(("#", _DOCUMENT_START)):
                columns = self._split(line)
                if not self._problem(columns, len(columns)):
                    return len(columns)
        return 0

    def _split(self, line: str) -> list[str]:
        columns = line.split(_SEPARATORS[self.separator])
        return columns if self.separator == "tab" else [column for column in columns if column]

    def _row(self, lines: Iterator[tuple[int, str | BadRow]], file_width: int) -> Tagged | BadRow | None:
        """Parse the lines of a sentence. None if all of them are comments."""
        numbered_columns: list[tuple[int, list[str]]] = []
        width = 0
        for number, line in lines:
            if isinstance(line, BadRow):
                return line
            if line.startswith(_DOCUMENT_START):
                continue
            columns = self._split(line)
            numbered_columns.append((number, columns))
            if not line.startswith("#"):
                width = width or len(columns)
                if reason := self._problem(columns, width):
                    return BadRow(f"{self.file}:{number}", reason)
        return self._tagged([item for item in numbered_columns if _is_word(item[1], width or file_width)])

    def _tagged(self, words: list[tuple[int, list[str]]]) -> Tagged | BadRow | None:
        for number, columns in words:
            if reason := self._problem(columns, len(columns)):
                return BadRow(f"{self.file}:{number}", reason)
        words = [(number, columns) for number, columns in words if not self._is_range_or_empty_node(columns)]
        if not words:
            return None
        texts = tuple(columns[self.word] for _, columns in words)
        return Tagged(texts, tuple(columns[self.label] for _, columns in words), f"{self.file}:{words[0][0]}")

    def _is_range_or_empty_node(self, columns: list[str]) -> bool:
        conllu = self.separator == "tab" and len(columns) == _CONLLU_COLUMNS and self.word % _CONLLU_COLUMNS != 0
        return conllu and _RANGE_OR_EMPTY_NODE.fullmatch(columns[0]) is not None

    def _problem(self, columns: list[str], width: int) -> str:
        """Why a line cannot be a word of a sentence with `width` columns; "" if it can."""
        count = len(columns)
        hint = f"check that the columns are separated by {self.separator}s, or change the option 'separator'"
        if count < self.min_columns:
            return f"too few columns: expected at least {self.min_columns}, got {count}; {hint}"
        if count != width:
            return (
                f"has {count} columns, but the first line of its sentence has {width}; all lines need the same number"
            )
        if self.word % count == self.label % count:
            return f"too few columns: with {count}, 'word' and 'label' are the same column; {hint}"
        if not columns[self.word].strip():
            return "the word is empty; write one, or leave the line blank to end the sentence"
        return ""


def _min_columns(column: int) -> int:
    return column + 1 if column >= 0 else -column


def _is_word(columns: list[str], width: int) -> bool:
    return not columns[0].startswith("#") or len(columns) == width


def blocks(path: Path, name: str) -> Iterator[Iterator[tuple[int, str | BadRow]]]:
    """The blocks of numbered lines between blank lines, as lazy iterators: lines of a block that are not consumed are
    skipped."""
    for blank, lines in groupby(enumerate(read_lines(path, name), start=1), key=lambda numbered: _blank(numbered[1])):
        if not blank:
            yield lines


def _blank(line: str | BadRow) -> bool:
    return isinstance(line, str) and not line.strip(" \t")
