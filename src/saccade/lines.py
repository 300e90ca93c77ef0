"""Read lines of text and numeric series, and write text. UTF-8; only `\\n` ends a line; `-` is stdin or stdout."""

import gzip
import io
import queue
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

from saccade.errors import DataError

if TYPE_CHECKING:
    import numpy as np

_T = TypeVar("_T")

LINES_PER_GROUP = 2000  # lines that are translated or labeled in one call: enough for batches of similar length
SERIES_PER_GROUP = 32


def file_lines(name: str) -> Iterator[str]:
    """The lines of a file (plain or .gz) or of stdin, unchanged. DataError with file and line if one is not UTF-8."""
    if name == "-":
        yield from _decoded(sys.stdin.buffer, name)
        return
    try:
        with gzip.open(name) if name.endswith(".gz") else open(name, "rb") as file:
            yield from _decoded(file, name)
    except gzip.BadGzipFile:
        raise DataError(
            f"{name}: is not gzip data, or is damaged; remove .gz from its name, or compress or download it again"
        ) from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{name}: is damaged: {error}; compress or download it again") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}") from None


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, raw in enumerate(lines, 1):
        try:
            yield raw.removesuffix(b"\n").decode()
        except UnicodeDecodeError as error:
            from saccade.data.sources.rows import GZIP_MAGIC  # imported here: text needs no NumPy

            if number == 1 and raw.startswith(GZIP_MAGIC):
                raise DataError(f"{name}: contains gzip data; decompress it, or rename it to end in .gz") from None
            reason = f"{error.reason} at byte {error.start}"
            raise DataError(f"{name}:{number}: is not UTF-8: {reason}; convert the file to UTF-8 (iconv)") from None


def grouped(name: str) -> Iterator[list[str]]:
    """Lines in groups of up to LINES_PER_GROUP. From stdin, a group is whatever has arrived, so that interactive input
    is answered at once."""
    if name != "-":
        yield from in_groups(file_lines(name), LINES_PER_GROUP)
        return
    pending: queue.Queue[str | Exception | None] = queue.Queue(LINES_PER_GROUP)
    threading.Thread(target=_pump, args=(pending,), daemon=True).start()
    ended = False
    while not ended:
        group, ended = _drain(pending)
        if group:
            yield group


def in_groups(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Lists of `size` items; the last one may be shorter."""
    group: list[_T] = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _pump(pending: "queue.Queue[str | Exception | None]") -> None:
    try:
        for line in file_lines("-"):
            pending.put(line)
        pending.put(None)
    except Exception as error:  # raised again in the thread that reads the queue
        pending.put(error)


def _drain(pending: "queue.Queue[str | Exception | None]") -> tuple[list[str], bool]:
    """Wait for one line, then take all that are available. The second value is True at the end of the input."""
    group: list[str] = []
    while len(group) < LINES_PER_GROUP:
        try:
            item = pending.get(block=not group)
        except queue.Empty:
            break
        if isinstance(item, Exception):
            raise item
        if item is None:
            return group, True
        group.append(item)
    return group, False


def series(name: str, width: int) -> "Iterator[tuple[str, np.ndarray]]":
    """The series of an .npz file or of text (plain, .gz or stdin) as (name, frames). In text, each line is a frame, and
    a blank line separates two series."""
    from saccade.data.frames import as_frames, frame_of, npz_frames  # imported here: text needs no NumPy

    if name.lower().endswith(".npz"):
        yield from npz_frames(Path(name), width)
        return
    ordinal, frames = 1, []
    for number, line in enumerate(file_lines(name), 1):
        if line.strip():
            frames.append(frame_of(line, width, f"{name}:{number}"))
        elif frames:
            yield f"series{ordinal}", as_frames(frames, width, name)
            ordinal, frames = ordinal + 1, []
    if frames:
        yield f"series{ordinal}", as_frames(frames, width, name)


@contextmanager
def open_output(name: str) -> Iterator[TextIO]:
    """A text stream that writes UTF-8 and `\\n` on every platform."""
    if name == "-":
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    with open(name, "w", encoding="utf-8", newline="\n") as file:
        yield file
