"""Lines of text and series of numbers in and out: UTF-8, ending at a newline only, `-` for stdin and stdout."""

import gzip
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

LINES_PER_GROUP = 2000  # lines translated together: enough to sort by length
SERIES_PER_GROUP = 32


def file_lines(name: str) -> Iterator[str]:
    """The lines of a file (plain or .gz) or of stdin, as they are. Only what is not UTF-8 stops, with its place."""
    if name == "-":
        yield from _decoded(sys.stdin.buffer, name)
        return
    try:
        with gzip.open(name) if name.endswith(".gz") else open(name, "rb") as file:
            yield from _decoded(file, name)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name}: cannot be read: {error}") from None


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, raw in enumerate(lines, 1):
        try:
            yield raw.removesuffix(b"\n").decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{name}:{number}: is not UTF-8: {error.reason} at byte {error.start}") from None


def grouped(name: str) -> Iterator[list[str]]:
    """Lines in groups: what has come so far from stdin, so that a person at a pipe need not wait; many of a file."""
    if name != "-":
        yield from in_groups(file_lines(name), LINES_PER_GROUP)
        return
    waiting: queue.Queue[str | Exception | None] = queue.Queue(LINES_PER_GROUP)
    threading.Thread(target=_pump, args=(waiting,), daemon=True).start()
    ended = False
    while not ended:
        group, ended = _drain(waiting)
        if group:
            yield group


def in_groups(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """As many together as there are, up to `size`."""
    group: list[_T] = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _pump(waiting: "queue.Queue[str | Exception | None]") -> None:
    try:
        for line in file_lines("-"):
            waiting.put(line)
        waiting.put(None)
    except Exception as error:  # handed over to the reader's thread
        waiting.put(error)


def _drain(waiting: "queue.Queue[str | Exception | None]") -> tuple[list[str], bool]:
    """Wait for one line, then take what is there; True at the end."""
    group: list[str] = []
    while len(group) < LINES_PER_GROUP:
        try:
            item = waiting.get(block=not group)
        except queue.Empty:
            break
        if isinstance(item, Exception):
            raise item
        if item is None:
            return group, True
        group.append(item)
    return group, False


def series(name: str, width: int) -> "Iterator[tuple[str, np.ndarray]]":
    """The series of an .npz file, or of text (plain, .gz or stdin): a frame a line, a blank line between two."""
    from saccade.data.frames import as_frames, frame_of, npz_frames  # lines of text need no numbers

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
def output(name: str) -> Iterator[TextIO]:
    """A text stream that writes UTF-8 and bare newlines wherever it runs."""
    if name == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    with open(name, "w", encoding="utf-8", newline="\n") as file:
        yield file
