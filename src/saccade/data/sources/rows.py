"""What every source gives (a Pair or a Fault for each row), and the one reader of text lines beneath them."""

import difflib
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import count
from pathlib import Path
from typing import Protocol

import numpy as np

from saccade.data.links import Gold
from saccade.errors import DataError

MAX_LINE_CHARACTERS = 100_000
MAX_LINE_BYTES = 4 * MAX_LINE_CHARACTERS  # UTF-8 needs at most four bytes a character
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
_TOO_LONG = f"the line has more than {MAX_LINE_CHARACTERS:,} characters; split it or take it out"


@dataclass(frozen=True, slots=True)
class Pair:
    """One sentence and its translation; `place` is where it was read, such as "train.en:17". `links` say which of their
    words belong together, where someone has said so."""

    source: str
    target: str
    location: str
    links: Gold | None = None


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence as words, with a label for each ("" = none)."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    location: str


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """A series of numbers [T F] with a label for each frame ("" = none) or one for all of it. `group` is whose it is:
    a group must not stand in two splits."""

    source: np.ndarray
    target: tuple[str, ...] | str
    location: str
    group: str = ""


Row = Pair | Tagged | Frames


@dataclass(frozen=True, slots=True)
class Fault:
    """Rows that cannot be used: where ("file:line") they begin, why with what to do about it, and how many."""

    location: str
    reason: str
    rows: int = 1

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}"


class Source(Protocol):
    """Parallel text. Keyword-only constructor parameters are the options a user may set."""

    def files(self) -> dict[str, Path]:
        """Give the path of each file under the option that named it; none if rows are generated."""
        ...

    def rows(self) -> Iterator[Row | Fault]:
        """Give every row, in the order of the file, without holding the file in memory."""
        ...


def existing(folder: Path, name: str, option: str) -> Path:
    """Give `folder / name`, or say which option asked for a file that is not there."""
    path = folder / name
    if path.is_dir():
        raise DataError(f"{path.absolute()}: is a folder, but '{option}' must name a file")
    if not path.exists():
        raise DataError(f"{path.absolute()}: no such file (asked for by '{option}'){_nearest(path)}")
    return path


def _nearest(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; the folder {path.parent.absolute()} does not exist either"
    names = sorted(other.name for other in path.parent.iterdir() if other.is_file())
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def read_lines(path: Path, name: str) -> Iterator[str | Fault]:
    """Give the text of each line of a plain or .gz file, or the Fault that makes it unusable.

    A line ends at "\\n" only: ending it at U+2028 or U+0085 too would shift one side of a corpus.
    """
    with _opened(path, name) as stream:
        for number in count(1):
            place = f"{name}:{number}"
            try:
                raw, whole = _next_line(stream)
            except (EOFError, OSError, zlib.error) as error:
                raise DataError(f"{place}: the file is damaged here ({error}); fetch it again") from error
            if not raw:
                return
            yield _text(raw, place, number == 1) if whole else Fault(place, _TOO_LONG)


@contextmanager
def _opened(path: Path, name: str) -> Iterator[BufferedIOBase]:
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path.absolute()}: cannot be opened ({error.strerror})") from error
    with raw:
        packed = raw.peek(2)[:2] == GZIP_MAGIC
        if packed and path.suffix != ".gz":
            raise DataError(f"{name}:1: holds gzip data; rename it to end in .gz, or unpack it")
        if path.suffix != ".gz":
            yield raw
        elif packed:
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked
        else:
            raise DataError(f"{name}:1: is not gzip data; pack it with gzip, or drop .gz from its name")


def _next_line(stream: BufferedIOBase) -> tuple[bytes, bool]:
    """Give the next line and True, or the start of a line too long to hold and False; b"" at the end."""
    raw = part = stream.readline(MAX_LINE_BYTES + 1)
    whole = len(raw) <= MAX_LINE_BYTES or raw.endswith(b"\n")
    while not whole and part and not part.endswith(b"\n"):
        part = stream.readline(MAX_LINE_BYTES)
    return raw, whole


def _text(raw: bytes, place: str, first: bool) -> str | Fault:
    if first and raw.startswith(BYTE_ORDER_MARK):
        return Fault(place, "the file starts with a byte order mark; save it as UTF-8 without BOM")
    if raw.endswith(b"\r\n"):
        return Fault(place, "the line ends in CRLF; convert the file to LF (dos2unix)")
    if (nul := raw.find(b"\0")) >= 0:
        return Fault(place, f"NUL byte at offset {nul} of the line; remove it, or convert UTF-16 to UTF-8")
    try:
        text = raw.removesuffix(b"\n").decode()
    except UnicodeDecodeError as error:
        found = f"byte 0x{raw[error.start]:02x} at offset {error.start} of the line is not UTF-8"
        return Fault(place, f"{found}; convert the file to UTF-8 (iconv)")
    return text if len(text) <= MAX_LINE_CHARACTERS else Fault(place, _TOO_LONG)
