"""Measures of labels: who was taken for whom, accuracy, and precision, recall and F1 of each label."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.errors import DataError

_LABELS_SHOWN = 30
_LABEL_WIDTH = 20
_CORNER = "true \\ found"


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each true label (rows) was found as each label (columns). All measures are in per cent.

    Nothing divided by nothing is 0: the precision of a label that was never found, the recall of one that never
    occurs, the accuracy of no rows.
    """

    labels: tuple[str, ...]
    counts: np.ndarray  # [true, found]

    @classmethod
    def of(cls, true: Sequence[str], found: Sequence[str], labels: Sequence[str] | None = None) -> "Confusion":
        """Count pairs of labels; where the true one is "" there is none, and the pair is left out.

        `labels` fixes the order; without it all that occur are sorted, numbers by size.
        """
        if len(true) != len(found):
            raise DataError(f"{len(found):,} labels cannot be measured by {len(true):,} true ones")
        pairs = [(t, f) for t, f in zip(true, found, strict=True) if t]
        seen = {label for pair in pairs for label in pair}
        names = tuple(sorted(seen, key=_order) if labels is None else labels)
        number = {label: i for i, label in enumerate(names)}
        if len(number) < len(names):
            raise DataError(f"a label stands twice among {', '.join(names)}")
        unknown = sorted(seen - number.keys())
        if unknown:
            raise DataError(f"label {unknown[0]!r} is not among the labels that are measured: {', '.join(names)}")
        cells = np.array([number[t] * len(names) + number[f] for t, f in pairs], dtype=np.int64)
        return cls(names, np.bincount(cells, minlength=len(names) ** 2).reshape(len(names), len(names)))

    def accuracy(self, over: Sequence[str] = ()) -> float:
        """The share of rows found right, of those whose true label is in `over` (of all if empty)."""
        rows = self._numbers(over)
        return 100 * _share(self.counts[rows, rows].sum(), self.counts[rows].sum())

    def macro_f1(self, over: Sequence[str] = ()) -> float:
        """The mean F1 of the labels in `over` (of all if empty) that occur in truth or were found."""
        seen = self.counts.sum(0) + self.counts.sum(1)
        each = self.per_label()
        scores = [each[self.labels[i]]["f1"] for i in self._numbers(over) if seen[i]]
        return sum(scores) / max(1, len(scores))

    def per_label(self) -> dict[str, dict[str, float]]:
        """Precision, recall and F1 of each label, and how often it truly occurs."""
        right, true, found = np.diag(self.counts), self.counts.sum(1), self.counts.sum(0)
        return {
            label: {
                "precision": 100 * _share(right[i], found[i]),
                "recall": 100 * _share(right[i], true[i]),
                "f1": 100 * _share(2 * right[i], true[i] + found[i]),
                "count": int(true[i]),
            }
            for i, label in enumerate(self.labels)
        }

    def plain(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only, ready for JSON."""
        return {
            "accuracy": self.accuracy(),
            "macro_f1": self.macro_f1(),
            "labels": list(self.labels),
            "confusion": self.counts.tolist(),
            "per_label": self.per_label(),
        }

    def lines(self, width: int = 100) -> list[str]:
        """A table for a terminal so many characters wide: true labels down, found ones across by their numbers.

        Columns that do not fit follow below; of more than thirty labels the most frequent are shown.
        """
        shown = self._most_frequent()
        if not shown:
            return ["no labels"]
        heads = [f"{number:>2} {_short(self.labels[i])}" for number, i in enumerate(shown, 1)]
        left = max(len(_CORNER), *map(len, heads))
        cell = 1 + max(2, len(f"{self.counts[np.ix_(shown, shown)].max()}"))
        fit = max(1, (width - left) // cell)
        lines = [
            line
            for first in range(0, len(shown), fit)
            for line in self._block(shown, heads, range(first, min(first + fit, len(shown))), left, cell)
        ]
        hidden = len(self.labels) - len(shown)
        return [*lines, f"... and {hidden:,} more labels"] if hidden else lines

    def _block(self, shown: list[int], heads: list[str], columns: range, left: int, cell: int) -> Iterator[str]:
        yield f"{_CORNER:<{left}}" + "".join(f"{column + 1:>{cell}}" for column in columns)
        for row, head in zip(shown, heads, strict=True):
            counts = (self.counts[row, shown[column]] for column in columns)
            yield f"{head:<{left}}" + "".join(f"{count or '.':>{cell}}" for count in counts)

    def _most_frequent(self) -> list[int]:
        """The labels to show, in their own order."""
        seen = self.counts.sum(0) + self.counts.sum(1)
        return sorted(np.argsort(-seen, kind="stable")[:_LABELS_SHOWN].tolist())

    def _numbers(self, over: Sequence[str]) -> list[int]:
        return [i for i, label in enumerate(self.labels) if not over or label in over]


def _order(label: str) -> tuple[bool, int, str]:
    return (False, len(label), label) if label.isdecimal() else (True, 0, label)


def _share(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0


def _short(label: str) -> str:
    text = label if label.isprintable() else repr(label)
    return text if len(text) <= _LABEL_WIDTH else f"{text[: _LABEL_WIDTH - 1]}…"
