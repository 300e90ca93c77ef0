"""The measured speed of each model, from which the queue predicts whether a request can meet its deadline."""

from collections.abc import Hashable

SMOOTHING_FACTOR = 0.8  # the weight of the previous estimate in the moving average


class Throughput:
    """The seconds that a worker needs per unit of size, (tokens + end symbol) × hypotheses, as a moving average for
    each model and number of rows: a unit in a large batch takes far less time than in a small one."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[Hashable, int], float] = {}

    def record(self, model: Hashable, rows: int, size: int, seconds: float) -> None:
        """Add the measurement of one batch."""
        key = model, _size_class(rows)
        new = seconds / max(1, size)
        self._seconds[key] = SMOOTHING_FACTOR * self._seconds.get(key, new) + (1 - SMOOTHING_FACTOR) * new

    def seconds(self, model: Hashable, rows: int, size: int) -> float:
        """The estimated time of one worker for work of this size, in batches of so many rows; 0 without a
        measurement."""
        nearest_class = min(
            (size_class for measured, size_class in self._seconds if measured == model),
            key=lambda size_class: abs(size_class - _size_class(rows)),
            default=None,
        )
        return 0.0 if nearest_class is None else size * self._seconds[model, nearest_class]


def _size_class(rows: int) -> int:
    """Batches of 1, 2, 3–4, 5–8, … rows share an estimate."""
    return (rows - 1).bit_length()
