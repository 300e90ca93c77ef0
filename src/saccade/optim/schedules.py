"""Learning-rate schedules: update number (from 1) → learning rate. They are pure functions, so checkpoints need not
store them."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

from saccade.config import Fraction, Natural, Positive, Slot


class Schedule(Protocol):
    """The contract of a schedule: the learning rate of update number `step`."""

    def __call__(self, step: int) -> float: ...


def warmup_fraction(step: int, warmup: int) -> float:
    """The completed fraction of the warm-up, 0 to 1."""
    return min(1.0, step / max(1, warmup))


def decay_fraction(step: int, warmup: int, updates: int) -> float:
    """The completed fraction of the updates after the warm-up, 0 to 1."""
    return min(1.0, max(0.0, (step - warmup) / max(1, updates - warmup)))


class InverseRoot:
    """Linear warm-up to `rate` over `warmup` updates, then decay with 1/√step (Vaswani et al. 2017, §5.3)."""

    def __init__(self, *, rate: Positive = 5e-4, warmup: Natural = 4000):
        self.rate, self.warmup = rate, warmup

    def __call__(self, step: int) -> float:
        return self.rate * warmup_fraction(step, self.warmup) * min(1.0, math.sqrt(max(1, self.warmup) / step))


class Cosine:
    """Linear warm-up to `rate`, then half a cosine down to `last` × `rate` at the last update (Loshchilov & Hutter
    2017)."""

    def __init__(self, updates: int, *, rate: Positive = 5e-4, warmup: Natural = 1000, last: Fraction = 0.0):
        self.updates, self.rate, self.warmup, self.last = updates, rate, warmup, last

    def __call__(self, step: int) -> float:
        remaining = (1 + math.cos(math.pi * decay_fraction(step, self.warmup, self.updates))) / 2
        return self.rate * warmup_fraction(step, self.warmup) * (self.last + (1 - self.last) * remaining)


class LinearDecay:
    """Linear warm-up to `rate`, then linear decay to `last` × `rate` at the last update."""

    def __init__(self, updates: int, *, rate: Positive = 5e-4, warmup: Natural = 1000, last: Fraction = 0.0):
        self.updates, self.rate, self.warmup, self.last = updates, rate, warmup, last

    def __call__(self, step: int) -> float:
        remaining = 1 - decay_fraction(step, self.warmup, self.updates)
        return self.rate * warmup_fraction(step, self.warmup) * (self.last + (1 - self.last) * remaining)


class Constant:
    """Linear warm-up to `rate`, then constant."""

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
