"""The offline attention page, and the JSON data of the viewer that the page, the report and the service share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from saccade.view.document import html_document, write_atomically
from saccade.view.maps import AttentionMap, AttentionMaps, Axis

WEIGHT_SCALE = 10_000  # weights are stored as integers, weight × scale: a third of the size of decimal fractions


def write_page(sentences: Sequence[AttentionMaps], path: Path, title: str) -> Path:
    """Write one HTML file that shows the attention of each sentence; returns its path."""
    write_atomically(Path(path), page(sentences, title))
    return Path(path)


def page(sentences: Sequence[AttentionMaps], title: str) -> bytes:
    """The HTML file that `write_page` writes."""
    return html_document("page.html", "page.js", ("base.css", "attention.css"), title, viewer_data(sentences))


def viewer_data(sentences: Sequence[AttentionMaps]) -> dict[str, Any]:
    """The argument of `attentionView` in `web/attention.js`, ready for JSON."""
    return {"scale": WEIGHT_SCALE, "sentences": [_sentence(maps) for maps in sentences]}


def _sentence(maps: AttentionMaps) -> dict[str, Any]:
    levels = {"pieces": [_map(name, attention) for name, attention in maps.maps.items()]}
    if any(_has_split_words(attention) for attention in maps.maps.values()):
        # The word level is computed here, by `AttentionMap.words`, so that the viewer does not merge pieces again.
        levels["words"] = [_map(name, attention) for name, attention in maps.words().maps.items()]
    return {"source": maps.source, "target": maps.target, "levels": levels}


def _has_split_words(attention: AttentionMap) -> bool:
    return any(len(axis.word_starts()) < len(axis) for axis in (attention.rows, attention.columns))


def _map(name: str, attention: AttentionMap) -> dict[str, Any]:
    return {
        "name": name,
        "kind": attention.kind,
        "rows": _axis(attention.rows),
        "columns": _axis(attention.columns),
        "weights": _scaled(attention.weights),
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"labels": axis.labels, "words": axis.words}


def _scaled(weights: np.ndarray) -> list[Any]:
    """Nested lists of weight × WEIGHT_SCALE, rounded. NaN and infinity become null, so that the viewer can show that
    the model diverged."""
    finite = np.isfinite(weights)
    scaled = np.rint(np.where(finite, weights, 0).astype(np.float64) * WEIGHT_SCALE).astype(np.int64)
    if finite.all():
        return scaled.tolist()
    with_nulls = scaled.astype(object)
    with_nulls[~finite] = None
    return with_nulls.tolist()
