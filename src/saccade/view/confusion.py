"""The confusion matrix and the scores of each label, as HTML tables."""

from __future__ import annotations

import numpy as np

from saccade.metrics.labels import Confusion
from saccade.view.markup import escape, paragraph, scroll_area, table

MAX_MATRIX_LABELS = 30  # rarer labels are left out of the matrix
MATRIX_SHADES = 9  # the CSS classes h1 to h9
MAX_HEADER_LENGTH = 5  # characters; if a label is longer, the columns are numbered instead


def label_table(confusion: Confusion) -> str:
    """Precision, recall and F1 of each label."""
    metrics = {"precision": "precision", "recall": "recall", "f1": "F1"}
    rows = [
        [escape(label), *(f"{scores[name]:.1f}" for name in metrics), f"{scores['count']:,}"]
        for label, scores in confusion.per_label().items()
    ]
    return f"<h3>By label</h3>{table('values', 'By label', ['label', *metrics.values(), 'count'], rows)}"


def confusion_table(confusion: Confusion) -> str:
    """The counts of the most frequent labels, shaded by their share of the row."""
    frequency = confusion.counts.sum(0) + confusion.counts.sum(1)
    shown = sorted(np.argsort(-frequency, kind="stable")[:MAX_MATRIX_LABELS].tolist())
    short = all(len(confusion.labels[i]) <= MAX_HEADER_LENGTH for i in shown)
    headers = [confusion.labels[i] if short else str(number) for number, i in enumerate(shown, 1)]
    top = "".join(f'<th scope="col">{escape(header)}</th>' for header in headers)
    rows = "".join(
        f'<tr><th scope="row">{escape(confusion.labels[i])}{"" if short else f" <b>{header}</b>"}</th>'
        f"{_cells(confusion.counts[i], shown)}</tr>"
        for header, i in zip(headers, shown, strict=True)
    )
    caption = f"Rows are true labels, columns are predicted labels{'' if short else ' by number'}. "
    caption += "The shade is the share of the row."
    if hidden := len(confusion.labels) - len(shown):
        caption += f" Only the {MAX_MATRIX_LABELS} most frequent labels are shown; {hidden:,} are left out."
    whole = f'<table class="confusion"><thead><tr><td></td>{top}</tr></thead><tbody>{rows}</tbody></table>'
    return f"<h3>Confusion matrix</h3>{paragraph(caption)}{scroll_area(whole, 'Confusion matrix')}"


def _cells(counts: np.ndarray, shown: list[int]) -> str:
    shares = counts / max(1, counts.sum())
    return "".join(f'<td class="h{np.ceil(MATRIX_SHADES * shares[i]):.0f}">{counts[i] or "·"}</td>' for i in shown)
