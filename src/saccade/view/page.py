"""The offline page: the attention of some sentences in one HTML file, and the data that every viewer reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from saccade.view.document import document, write_whole
from saccade.view.maps import AttentionMap, AttentionMaps, Axis

WEIGHT_SCALE = 10_000  # weights travel as whole ten-thousandths: a third of the size of decimal fractions


def write_page(pages: Sequence[AttentionMaps], path: Path, title: str) -> Path:
    """Write one HTML file that shows the attention of each sentence; returns its path."""
    write_whole(Path(path), page(pages, title))
    return Path(path)


def page(pages: Sequence[AttentionMaps], title: str) -> bytes:
    """The whole page."""
    return document("page.html", "page.js", ("base.css", "attention.css"), title, viewer_data(pages))


def viewer_data(pages: Sequence[AttentionMaps]) -> dict[str, Any]:
    """What `attentionView` in `web/attention.js` reads, ready for JSON."""
    return {"scale": WEIGHT_SCALE, "sentences": [_sentence(each) for each in pages]}


def _sentence(maps: AttentionMaps) -> dict[str, Any]:
    levels = {"pieces": [_map(name, each) for name, each in maps.maps.items()]}
    if any(_has_split_words(each) for each in maps.maps.values()):
        # Both levels are written out, so that merging is done in one place only: `Map.words`.
        levels["words"] = [_map(name, each) for name, each in maps.words().maps.items()]
    return {"source": maps.source, "target": maps.target, "levels": levels}


def _has_split_words(each: AttentionMap) -> bool:
    return any(len(axis.starts()) < len(axis) for axis in (each.rows, each.columns))


def _map(name: str, each: AttentionMap) -> dict[str, Any]:
    return {
        "name": name,
        "kind": each.kind,
        "rows": _axis(each.rows),
        "columns": _axis(each.columns),
        "weights": _whole_numbers(each.weights),
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"labels": axis.labels, "words": axis.words}


def _whole_numbers(weights: np.ndarray) -> list[Any]:
    """Nested lists of ten-thousandths; null where a weight is no number (a diverged model must be seen)."""
    finite = np.isfinite(weights)
    scaled = np.rint(np.where(finite, weights, 0).astype(np.float64) * WEIGHT_SCALE).astype(np.int64)
    if finite.all():
        return scaled.tolist()
    with_gaps = scaled.astype(object)
    with_gaps[~finite] = None
    return with_gaps.tolist()
