"""The row types that sources yield, and the reader of text lines that all text sources use."""

import difflib
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from saccade.data.links import GradedLinks
from saccade.errors import DataError

MAX_LINE_CHARACTERS = 100_000
MAX_LINE_BYTES = 4 * MAX_LINE_CHARACTERS  # a character has at most four bytes in UTF-8
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
READ_BYTES = io.DEFAULT_BUFFER_SIZE
LINES_BLOCK_BYTES = 1 << 15  # lines are decoded in blocks of about this size
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_TOO_LONG = f"the line has more than {MAX_LINE_CHARACTERS:,} characters; split or delete it"


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation, or a text and its label. `location` is its file and line, such as "train.en:17";
    `links` is the word alignment of a sentence pair, if the data has one."""

    source: str
    target: str
    location: str
    links: GradedLinks | None = None


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence as words, with a label for each word ("" = none)."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    location: str


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A numeric series [T F] with a label for each frame ("" = none), or one label for the whole series. A `group`,
    such as all series of one person, must not be in two splits."""

    source: np.ndarray
    target: tuple[str, ...] | str
    location: str
    group: str = ""


Row = Pair | Tagged | Series
WholeRow = Pair | Series  # may have one target for the whole source
StepwiseRow = Tagged | Series  # may have a target for each step of the source: for each word or frame


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used, or several rows with the same problem: the location ("file:line") of the first one,
    the reason with what to do, and the number of rows."""

    location: str
    reason: str
    rows: int = 1

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}"


class Source(Protocol):
    """A source of rows. The keyword-only constructor parameters are its options in the config."""

    def files(self) -> dict[str, Path]:
        """The path of each file, by the option that names it; empty if the rows are generated."""
        ...

    def rows(self) -> Iterator[Row | BadRow]:
        """All rows in the order of the file, without loading the file into memory."""
        ...


@runtime_checkable
class LineSource(Source, Protocol):
    """A source of pairs, each from one line of its first file (and of the others). The texts hold no newline."""

    def location(self, line: int) -> str:
        """The `location` of the pair in a line, counted from 1."""
        ...


def line_of(pair: Pair) -> int:
    """The number of a pair's line: the inverse of `LineSource.location`."""
    return int(pair.location[pair.location.rindex(":") + 1 :])


class MissingFile(DataError):
    """A data file does not exist."""

    def __init__(self, path: Path, advice: str):
        super().__init__(f"{path}: no such file; {advice}")
        self.path = path


def existing(folder: Path, name: str, option: str) -> Path:
    """`folder / name`; DataError with the option if there is no such file."""
    path = folder / name
    if path.is_dir():
        raise DataError(f"{path.absolute()}: is a folder, but '{option}' must name a file")
    if not path.exists():
        raise MissingFile(path.absolute(), f"correct the option '{option}' or data.folder{_hint(path)}")
    return path


def _hint(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (the folder {path.parent.absolute()} does not exist either)"
    names = sorted(other.name for other in path.parent.iterdir() if other.is_file())
    close = difflib.get_close_matches(path.name, names, n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def read_lines(path: Path, name: str) -> Iterator[str | BadRow]:
    """The text of each line of a plain or .gz file, or a BadRow if the line is unusable.

    Only "\\n" ends a line: splitting at U+2028 or U+0085 as well would misalign the two sides of a corpus.
    """
    number = 1
    with _open_text(path, name) as stream:
        try:
            for block in _blocks_of_lines(stream):
                lines = _usable_lines(block, number == 1) or _checked_lines(block, name, number)
                number += len(lines)
                yield from lines
        except (EOFError, OSError, zlib.error) as error:
            advice = f"the file is damaged from here on ({error}); download it again"
            raise DataError(f"{name}:{number}: {advice}") from error


def line_total(source: LineSource) -> int:
    """The number of lines of the source's first file, up to the first damage; for progress bars."""
    name, path = next(iter(source.files().items()))
    lines = 0
    with suppress(DataError, EOFError, OSError, zlib.error), _open_text(path, name) as stream:
        while block := stream.read1(LINES_BLOCK_BYTES):
            lines += block.count(b"\n")
    return lines


@contextmanager
def _open_text(path: Path, name: str) -> Iterator[BufferedIOBase]:
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path.absolute()}: cannot be opened ({error.strerror})") from error
    with raw:
        is_gzip = raw.peek(2)[:2] == GZIP_MAGIC
        if is_gzip and path.suffix != ".gz":
            raise DataError(f"{name}:1: contains gzip data; rename it to end in .gz, or decompress it")
        if path.suffix != ".gz":
            yield raw
        elif is_gzip:
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked
        else:
            raise DataError(f"{name}:1: is not gzip data; compress it, or remove .gz from its name")


def _blocks_of_lines(stream: BufferedIOBase) -> Iterator[bytes]:
    """The content of a file in blocks of whole lines. Of a line that is too long, only the beginning is kept. Lines
    before damage are yielded before the error is raised."""
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := stream.read1(READ_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size >= LINES_BLOCK_BYTES:
                lines, newline, rest = b"".join(pieces).rpartition(b"\n")
                if newline:
                    yield lines + newline
                pieces = [rest[: MAX_LINE_BYTES + 1]]
                size = len(rest) if newline else 0
    except (EOFError, OSError, zlib.error):
        lines, newline, _ = b"".join(pieces).rpartition(b"\n")
        if newline:
            yield lines + newline
        raise
    if block := b"".join(pieces):
        yield block


def _usable_lines(block: bytes, first: bool) -> list[str]:
    """The texts of a block of lines; empty if any line is unusable."""
    if b"\0" in block or b"\r\n" in block or (first and block.startswith(BYTE_ORDER_MARK)):
        return []
    try:
        lines = block.removesuffix(b"\n").decode().split("\n")
    except UnicodeDecodeError:
        return []
    return lines if max(map(len, lines)) <= MAX_LINE_CHARACTERS else []


def _checked_lines(block: bytes, name: str, number: int) -> list[str | BadRow]:
    """The text of each line of a block, or a BadRow; `number` is the number of the first line."""
    return [_text(raw, f"{name}:{line}", line == 1) for line, raw in enumerate(_LINE.findall(block), start=number)]


def _text(raw: bytes, location: str, first: bool) -> str | BadRow:
    if len(raw.removesuffix(b"\n")) > MAX_LINE_BYTES:
        return BadRow(location, _TOO_LONG)
    if first and raw.startswith(BYTE_ORDER_MARK):
        return BadRow(location, "the file starts with a byte order mark; save it as UTF-8 without BOM")
    if raw.endswith(b"\r\n"):
        return BadRow(location, "the line ends in CRLF; convert the file to LF (dos2unix)")
    if (nul := raw.find(b"\0")) >= 0:
        return BadRow(location, f"NUL byte at offset {nul} of the line; remove it, or convert UTF-16 to UTF-8")
    try:
        text = raw.removesuffix(b"\n").decode()
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} at offset {error.start} of the line"
        return BadRow(location, f"{byte} is not UTF-8; convert the file to UTF-8 (iconv)")
    return text if len(text) <= MAX_LINE_CHARACTERS else BadRow(location, _TOO_LONG)
