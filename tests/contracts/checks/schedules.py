"""The contract of a learning rate schedule."""

import itertools
import math
from collections.abc import Callable


def check_schedule(schedule: Callable[[int], float], rate: float, warmup: int, updates: int) -> None:
    """Linear warmup to `rate`, which is the maximum; it never rises after that, is never negative, and depends on the
    step only."""
    rates = [schedule(step) for step in range(1, updates + 50)]
    assert all(math.isfinite(r) and 0 <= r <= rate * (1 + 1e-9) for r in rates), "a rate is outside of [0, rate]"
    assert math.isclose(max(rates), rate, rel_tol=1e-9), "the maximum is not `rate`"
    for step in range(1, warmup + 1):
        assert math.isclose(schedule(step), rate * step / max(1, warmup), rel_tol=1e-9), "the warmup is not linear"
    after = rates[max(1, warmup) - 1 :]
    assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(after)), "the rate rises after the warmup"
    assert rates == [schedule(step) for step in range(1, updates + 50)], "the rate depends on more than the step"
