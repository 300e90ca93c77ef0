"""Messages and progress for the user, on stderr."""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

_T = TypeVar("_T")

ITEMS_PER_UPDATE = 10_000  # of a progress display, for fast items
PLAIN_PROGRESS_SECONDS = 10.0  # between two progress lines where there is no terminal


def console() -> Console:
    """A console on stderr. rich itself turns colors off for NO_COLOR, TERM=dumb and pipes."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def program() -> str:
    """The command as the user called it, so that suggested commands work in their shell."""
    called = Path(sys.argv[0])
    if called.name != "saccade":
        return f"{Path(sys.executable).name} -m saccade"
    return "saccade" if shutil.which("saccade") else str(called)


def clock(seconds: float) -> str:
    """A duration as m:ss or h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def track(items: Iterable[_T], total: int, label: str, size: Callable[[_T], int] = lambda item: 1) -> Iterator[_T]:
    """Iterate and show progress. `total` is the sum of the sizes of all items."""
    with _progress(total, label) as advance:
        for item in items:
            yield item
            advance(size(item))


def track_fast(items: Iterable[_T], total: int, label: str) -> Iterator[_T]:
    """Iterate over `total` items that come so fast that showing the progress of each would slow them down."""
    with _progress(total, label) as advance:
        for number, item in enumerate(items, start=1):
            yield item
            if number % ITEMS_PER_UPDATE == 0:
                advance(ITEMS_PER_UPDATE)


@contextmanager
def _progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, otherwise a line every PLAIN_PROGRESS_SECONDS. The result is called with the number of
    items that were done since the last call."""
    screen = console()
    if screen.is_terminal:
        with Progress(console=screen, transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda count: bar.advance(task, count)
        return
    began = printed = time.monotonic()
    done = 0

    def advance(count: int) -> None:
        nonlocal done, printed
        done += count
        now = time.monotonic()
        if now - printed > PLAIN_PROGRESS_SECONDS and done < total:
            screen.print(f"{label}: {done:,} of {total:,}, {clock((now - began) / done * (total - done))} left")
            printed = now

    yield advance
