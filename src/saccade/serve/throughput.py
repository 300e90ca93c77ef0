"""How fast the models are: measured, so that a promise can be refused before it is broken."""

from collections.abc import Hashable

SMOOTHING_FACTOR = 0.8  # how much of what was known stays when a batch has been measured


class Throughput:
    """Seconds a token takes a worker, learned for each model and size of batch: large batches are far cheaper."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[Hashable, int], float] = {}

    def record(self, model: Hashable, rows: int, tokens: int, seconds: float) -> None:
        key = model, _size(rows)
        a_token = seconds / max(1, tokens)
        self._seconds[key] = SMOOTHING_FACTOR * self._seconds.get(key, a_token) + (1 - SMOOTHING_FACTOR) * a_token

    def seconds(self, model: Hashable, rows: int, tokens: int) -> float:
        """How long one worker takes over so many tokens in batches of so many rows; 0 while nothing is known."""
        near = min(
            (size for known, size in self._seconds if known == model),
            key=lambda size: abs(size - _size(rows)),
            default=None,
        )
        return 0.0 if near is None else tokens * self._seconds[model, near]


def _size(rows: int) -> int:
    """1, 2, 3-4, 5-8, … rows count as alike."""
    return (rows - 1).bit_length()
