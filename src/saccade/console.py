"""Talking to people: always on stderr, in colour only where a terminal wants it."""

import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

_T = TypeVar("_T")

PLAIN_PROGRESS_SECONDS = 10.0  # seconds between plain lines


def console() -> Console:
    """rich obeys NO_COLOR, TERM and pipes by itself."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def program() -> str:
    """How the user called us, so that what we tell them to type works where they are."""
    called = Path(sys.argv[0])
    if called.name != "saccade":
        return f"{Path(sys.executable).name} -m saccade"
    return "saccade" if shutil.which("saccade") else str(called)


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def track(items: Iterable[_T], total: int, label: str) -> Iterator[_T]:
    """Pass items on and show how far we are: a bar on a terminal, else a line every few seconds."""
    screen = console()
    if screen.is_terminal:
        with Progress(console=screen, transient=True) as bar:
            yield from bar.track(items, total=total, description=label)
        return
    began = told = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - told > PLAIN_PROGRESS_SECONDS and count < total:
            screen.print(f"{label}: {count:,} of {total:,}, {clock((now - began) / count * (total - count))} left")
            told = now
