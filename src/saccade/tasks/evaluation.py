"""The evaluation of a trained model on one split: scores with intervals, best and worst rows, scores by length.

A task computes an `Evaluation` from rows and the model's outputs for them; the report, the model card and the cache in
the run folder read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from saccade.metrics.labels import Confusion
from saccade.metrics.translation import RESAMPLES

ROWS_SHOWN = 8  # the number of best rows, and of worst rows
LENGTH_BUCKETS = 8
PERFECT_SCORE = 99.995  # percent; rounds to 100.00


@dataclass(frozen=True)
class MetricScore:
    """The value of one metric, with its 95 % confidence interval and its sacreBLEU signature where they exist."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    signature: str = ""


@dataclass(frozen=True)
class ScoredRow:
    """A row with the model's output. `score` is its chrF, or the percentage of its labels that are correct."""

    source: str
    reference: str
    output: str
    score: float
    length: int


@dataclass(frozen=True)
class LengthBucket:
    """The scores of the rows whose length is between `first` and `last`; the last bucket has no upper bound (None)."""

    first: int
    last: int | None
    count: int
    scores: dict[str, float]

    def __str__(self) -> str:
        if self.last is None:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True)
class Evaluation:
    """The results on one split. `labels` and `counts` are the confusion matrix of a labeling task."""

    split: str
    rows: int
    length_unit: str
    scores: tuple[MetricScore, ...]
    best: tuple[ScoredRow, ...]
    worst: tuple[ScoredRow, ...]
    lengths: tuple[LengthBucket, ...]
    labels: tuple[str, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()  # [true, predicted]

    def __post_init__(self) -> None:
        if {len(self.labels)} != {len(self.counts), *map(len, self.counts)}:
            raise ValueError("the confusion matrix must have one row and one column for each label")

    @property
    def confusion(self) -> Confusion | None:
        return Confusion(self.labels, np.array(self.counts, dtype=np.int64)) if self.labels else None


def best_and_worst(rows: Sequence[ScoredRow]) -> tuple[tuple[ScoredRow, ...], tuple[ScoredRow, ...]]:
    """The rows with the highest and with the lowest scores; ties go to the longer row. No row is in both groups, and
    a perfect row is never among the worst."""
    ordered = sorted(rows, key=lambda row: (-row.score, -row.length))
    best = min(ROWS_SHOWN, (len(ordered) + 1) // 2)
    faulty = (row for row in ordered[best:] if row.score < PERFECT_SCORE)
    return tuple(ordered[:best]), tuple(sorted(faulty, key=lambda row: (row.score, -row.length))[:ROWS_SHOWN])


def bootstrap_interval(counts: np.ndarray, metric: Callable[[np.ndarray], float]) -> tuple[float, float] | None:
    """The 95 % interval of metric(counts.sum(0)) for counts [rows, …], by resampling rows (Koehn 2004)."""
    rows = len(counts)
    if rows < 2:
        return None
    random = np.random.default_rng(0)
    draws = (np.bincount(random.integers(rows, size=rows), minlength=rows) for _ in range(RESAMPLES))
    low, high = np.percentile([metric(np.tensordot(draw, counts, 1)) for draw in draws], [2.5, 97.5])
    return float(low), float(high)


def scores_by_length(
    lengths: Sequence[int], scores: Callable[[Sequence[int]], dict[str, float]]
) -> tuple[LengthBucket, ...]:
    """Group rows into buckets of equal width and compute `scores(row indices)` of each. Empty buckets are left out."""
    if not lengths:
        return ()
    array = np.array(lengths)
    width = _round_up(float(np.percentile(array, 95)) / LENGTH_BUCKETS)
    bucket_of_row = np.minimum((np.maximum(array, 1) - 1) // width, LENGTH_BUCKETS - 1)
    buckets = []
    for bucket in np.unique(bucket_of_row).tolist():
        chosen = np.flatnonzero(bucket_of_row == bucket).tolist()
        last = None if bucket == LENGTH_BUCKETS - 1 else (bucket + 1) * width
        buckets.append(LengthBucket(bucket * width + 1, last, len(chosen), scores(chosen)))
    return tuple(buckets)


def _round_up(number: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, … that is at least `number`."""
    return next(digit * 10**power for power in range(16) for digit in (1, 2, 5) if digit * 10**power >= number)
