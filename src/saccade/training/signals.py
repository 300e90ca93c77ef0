"""Ctrl-C and SIGTERM: finish the update, save, say how to go on. A second Ctrl-C ends at once."""

import os
import signal
import threading
from types import FrameType
from typing import Any


class Interrupted(Exception):
    """Training was asked to stop and has saved itself."""

    def __init__(self, number: int, step: int):
        super().__init__(f"interrupted by {signal.Signals(number).name} after step {step}")
        self.number, self.step = number, step


class Interrupts:
    """`with Interrupts() as interrupts:` … `if interrupts.number:`"""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        passed_on = number == signal.SIGTERM and "TORCHELASTIC_RUN_ID" in os.environ  # by torchrun, which had it too
        if self.number and not passed_on:
            raise SystemExit(128 + number)
        self.number = number
