"""Metrics of labels: confusion matrix, accuracy, and precision, recall and F1 of each label."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.errors import DataError, plural

_LABELS_SHOWN = 30
_LABEL_WIDTH = 20
_CORNER = "true \\ predicted"


@dataclass(frozen=True, eq=False)
class Confusion:
    """A confusion matrix: the number of rows by true label (matrix rows) and predicted label (columns).

    All metrics are in percent. 0 / 0 is 0: the precision of a label that is never predicted, the recall of a label that
    never occurs, the accuracy without rows.
    """

    labels: tuple[str, ...]
    counts: np.ndarray  # [true, predicted]

    @classmethod
    def of(cls, true: Sequence[str], predicted: Sequence[str], labels: Sequence[str] | None = None) -> "Confusion":
        """Count pairs of true and predicted labels. A pair whose true label is "" (none) is left out.

        `labels` sets the order of the labels. By default, all labels that occur are sorted, numbers by value.
        """
        if len(true) != len(predicted):
            raise DataError(
                f"there are {plural(len(predicted), 'predicted label')}, but {plural(len(true), 'true label')}"
            )
        pairs = [(t, p) for t, p in zip(true, predicted, strict=True) if t]
        seen = {label for pair in pairs for label in pair}
        names = tuple(sorted(seen, key=_sort_key) if labels is None else labels)
        number = {label: i for i, label in enumerate(names)}
        if len(number) < len(names):
            raise DataError(f"a label is listed twice: {', '.join(names)}")
        unknown = sorted(seen - number.keys())
        if unknown:
            raise DataError(f"label {unknown[0]!r} is not one of the listed labels: {', '.join(names)}")
        cells = np.array([number[t] * len(names) + number[p] for t, p in pairs], dtype=np.int64)
        return cls(names, np.bincount(cells, minlength=len(names) ** 2).reshape(len(names), len(names)))

    def accuracy(self, only_labels: Sequence[str] = ()) -> float:
        """The percentage of correct rows, among those whose true label is in `only_labels` (default: all)."""
        rows = self._indices(only_labels)
        return 100 * _ratio(self.counts[rows, rows].sum(), self.counts[rows].sum())

    def macro_f1(self, only_labels: Sequence[str] = ()) -> float:
        """The mean F1 of the labels in `only_labels` (default: all) that occur as true or as predicted label."""
        occurrences = self.counts.sum(0) + self.counts.sum(1)
        scores_of = self.per_label()
        scores = [scores_of[self.labels[i]]["f1"] for i in self._indices(only_labels) if occurrences[i]]
        return sum(scores) / max(1, len(scores))

    def count(self, only_labels: Sequence[str] = ()) -> int:
        """The number of rows whose true label is in `only_labels` (default: all)."""
        return int(self.counts[self._indices(only_labels)].sum())

    def per_label(self) -> dict[str, dict[str, float]]:
        """Precision, recall and F1 of each label, and the number of rows with this true label."""
        correct, true, predicted = np.diag(self.counts), self.counts.sum(1), self.counts.sum(0)
        return {
            label: {
                "precision": 100 * _ratio(correct[i], predicted[i]),
                "recall": 100 * _ratio(correct[i], true[i]),
                "f1": 100 * _ratio(2 * correct[i], true[i] + predicted[i]),
                "count": int(true[i]),
            }
            for i, label in enumerate(self.labels)
        }

    def plain(self) -> dict[str, Any]:
        """The metrics as JSON-serializable values."""
        return {
            "accuracy": self.accuracy(),
            "macro_f1": self.macro_f1(),
            "labels": list(self.labels),
            "confusion": self.counts.tolist(),
            "per_label": self.per_label(),
        }

    def lines(self, width: int = 100) -> list[str]:
        """The matrix as a table for a terminal: a row for each true label, a column for each predicted label, headed by
        its number.

        Columns beyond `width` characters follow below the others. Of more than 30 labels, the most frequent are shown.
        """
        shown = self._most_frequent()
        if not shown:
            return ["no labels"]
        headers = [f"{number:>2} {_shorten(self.labels[i])}" for number, i in enumerate(shown, 1)]
        left = max(len(_CORNER), *map(len, headers))
        cell = 1 + max(2, len(f"{self.counts[np.ix_(shown, shown)].max()}"))
        columns = max(1, (width - left) // cell)
        lines = [
            line
            for first in range(0, len(shown), columns)
            for line in self._block(shown, headers, range(first, min(first + columns, len(shown))), left, cell)
        ]
        hidden = len(self.labels) - len(shown)
        return [*lines, f"... and {hidden:,} more labels"] if hidden else lines

    def _block(self, shown: list[int], headers: list[str], columns: range, left: int, cell: int) -> Iterator[str]:
        yield f"{_CORNER:<{left}}" + "".join(f"{column + 1:>{cell}}" for column in columns)
        for row, header in zip(shown, headers, strict=True):
            counts = (self.counts[row, shown[column]] for column in columns)
            yield f"{header:<{left}}" + "".join(f"{count or '.':>{cell}}" for count in counts)

    def _most_frequent(self) -> list[int]:
        """The indices of the labels to show, in ascending order."""
        occurrences = self.counts.sum(0) + self.counts.sum(1)
        return sorted(np.argsort(-occurrences, kind="stable")[:_LABELS_SHOWN].tolist())

    def _indices(self, only_labels: Sequence[str]) -> list[int]:
        return [i for i, label in enumerate(self.labels) if not only_labels or label in only_labels]


def score_lines(scores: Mapping[str, Any]) -> list[str]:
    """What `saccade evaluate` prints of `Confusion.plain` and of the scores over selected labels."""
    per_label = scores["per_label"]
    width = max(len("label"), *map(len, per_label))
    only = f"   only {', '.join(scores['selected_labels'])}"
    selected_lines = [
        f"{'accuracy':<20} {scores['accuracy']:6.2f} %{only}",
        f"{'macro F1':<20} {scores['macro_f1']:6.2f} %{only}",
        f"{'labels counted':<20} {scores['count']:,}{only}",
        "",
    ]
    matrix = Confusion(tuple(scores["labels"]), np.array(scores["confusion"]))
    table = [
        f"{label:<{width}} {facts['precision']:9.2f} {facts['recall']:9.2f} {facts['f1']:9.2f} {facts['count']:9,}"
        for label, facts in per_label.items()
    ]
    return [
        *(selected_lines if scores["selected_labels"] else []),
        f"{'accuracy':<20} {matrix.accuracy():6.2f} %",
        f"{'macro F1':<20} {matrix.macro_f1():6.2f} %",
        f"{'labels counted':<20} {int(matrix.counts.sum()):,}",
        "",
        f"{'label':<{width}} {'precision':>9} {'recall':>9} {'F1':>9} {'count':>9}",
        *table,
        "",
        *matrix.lines(),
    ]


def _sort_key(label: str) -> tuple[bool, int, str]:
    return (False, len(label), label) if label.isdecimal() else (True, 0, label)


def _ratio(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0


def _shorten(label: str) -> str:
    text = label if label.isprintable() else repr(label)
    return text if len(text) <= _LABEL_WIDTH else f"{text[: _LABEL_WIDTH - 1]}…"
