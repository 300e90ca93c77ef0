"""Ctrl-C and SIGTERM: finish the update, save a checkpoint, stop. A second Ctrl-C exits at once."""

import os
import signal
import threading
from types import FrameType
from typing import Any


class Interrupted(Exception):
    """Training was stopped by a signal, after it saved a checkpoint."""

    def __init__(self, number: int, step: int):
        super().__init__(f"interrupted by {signal.Signals(number).name} after step {step}")
        self.number, self.step = number, step


class Interrupts:
    """Records the first signal: `with Interrupts() as interrupts:` … `if interrupts.number:`"""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # Python allows signal handlers only there
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # at Ctrl-C this process gets SIGINT from the terminal and SIGTERM from torchrun: the SIGTERM is not a second
        # request
        forwarded = number == signal.SIGTERM and "TORCHELASTIC_RUN_ID" in os.environ
        if self.number and not forwarded:
            raise SystemExit(128 + number)
        self.number = number
