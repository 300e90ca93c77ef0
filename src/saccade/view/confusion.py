"""Who was taken for whom, as tables."""

from __future__ import annotations

import numpy as np

from saccade.metrics.labels import Confusion
from saccade.view.markup import escape, paragraph, scrolling, table

MAX_MATRIX_LABELS = 30  # labels of a matrix
MATRIX_SHADES = 9
MAX_COLUMN_LABEL = 5  # characters of a label


def label_table(confusion: Confusion) -> str:
    """Precision, recall and F1 of each label."""
    measures = {"precision": "precision", "recall": "recall", "f1": "F1"}
    rows = [
        [escape(label), *(f"{facts[name]:.1f}" for name in measures), f"{facts['count']:,}"]
        for label, facts in confusion.per_label().items()
    ]
    return f"<h3>By label</h3>{table('values', 'By label', ['label', *measures.values(), 'count'], rows)}"


def confusion_table(confusion: Confusion) -> str:
    """Counts, shaded by the share of their row; columns go by the labels if those are short, else by their numbers."""
    seen = confusion.counts.sum(0) + confusion.counts.sum(1)
    chosen = sorted(np.argsort(-seen, kind="stable")[:MAX_MATRIX_LABELS].tolist())
    short = all(len(confusion.labels[i]) <= MAX_COLUMN_LABEL for i in chosen)
    heads = [confusion.labels[i] if short else str(number) for number, i in enumerate(chosen, 1)]
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    rows = "".join(
        f'<tr><th scope="row">{escape(confusion.labels[i])}{"" if short else f" <b>{head}</b>"}</th>'
        f"{_cells(confusion.counts[i], chosen)}</tr>"
        for head, i in zip(heads, chosen, strict=True)
    )
    told = f"True labels down, found ones across{'' if short else ' by their numbers'}, shaded by the share of a row."
    if hidden := len(confusion.labels) - len(chosen):
        told += f" The {MAX_MATRIX_LABELS} most frequent labels; {hidden:,} more are left out."
    whole = f'<table class="confusion"><thead><tr><td></td>{top}</tr></thead><tbody>{rows}</tbody></table>'
    return f"<h3>Confusion</h3>{paragraph(told)}{scrolling(whole, 'Confusion')}"


def _cells(counts: np.ndarray, chosen: list[int]) -> str:
    shares = counts / max(1, counts.sum())
    return "".join(f'<td class="h{np.ceil(MATRIX_SHADES * shares[i]):.0f}">{counts[i] or "·"}</td>' for i in chosen)
