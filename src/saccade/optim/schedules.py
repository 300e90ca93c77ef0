"""Schedules: the learning rate of update number `step`, from 1. Pure functions, so there is no state to save."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

from saccade.config import Fraction, Natural, Positive, Slot


class Schedule(Protocol):
    """The contract of a schedule."""

    def __call__(self, step: int) -> float: ...


def warmup_fraction(step: int, warmup: int) -> float:
    """How much of the warm-up is done, 0 to 1."""
    return min(1.0, step / max(1, warmup))


def decay_fraction(step: int, warmup: int, updates: int) -> float:
    """How much of the way from the warm-up to the last update is done, 0 to 1."""
    return min(1.0, max(0.0, (step - warmup) / max(1, updates - warmup)))


class InverseRoot:
    """Up in a line for `warmup` updates to `rate`, then down as 1/√step (Vaswani et al. 2017, §5.3)."""

    def __init__(self, *, rate: Positive = 5e-4, warmup: Natural = 4000):
        self.rate, self.warmup = rate, warmup

    def __call__(self, step: int) -> float:
        return self.rate * warmup_fraction(step, self.warmup) * min(1.0, math.sqrt(max(1, self.warmup) / step))


class Cosine:
    """Up in a line, then down along half a cosine to `last` × `rate` at the last update (Loshchilov & Hutter 2017)."""

    def __init__(self, updates: int, *, rate: Positive = 5e-4, warmup: Natural = 1000, last: Fraction = 0.0):
        self.updates, self.rate, self.warmup, self.last = updates, rate, warmup, last

    def __call__(self, step: int) -> float:
        left = (1 + math.cos(math.pi * decay_fraction(step, self.warmup, self.updates))) / 2
        return self.rate * warmup_fraction(step, self.warmup) * (self.last + (1 - self.last) * left)


class LinearDecay:
    """Up in a line, then down in a line to `last` × `rate` at the last update."""

    def __init__(self, updates: int, *, rate: Positive = 5e-4, warmup: Natural = 1000, last: Fraction = 0.0):
        self.updates, self.rate, self.warmup, self.last = updates, rate, warmup, last

    def __call__(self, step: int) -> float:
        left = 1 - decay_fraction(step, self.warmup, self.updates)
        return self.rate * warmup_fraction(step, self.warmup) * (self.last + (1 - self.last) * left)


class Constant:
    """Up in a line, then level."""

    def __init__(self, *, rate: Positive = 5e-4, warmup: Natural = 0):
        self.rate, self.warmup = rate, warmup

    def __call__(self, step: int) -> float:
        return self.rate * warmup_fraction(step, self.warmup)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "inverse_root": InverseRoot,
    "cosine": Cosine,
    "linear": LinearDecay,
    "constant": Constant,
}

ScheduleSlot = Annotated[Callable[..., Schedule], Slot(SCHEDULES)]
