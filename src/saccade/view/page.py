"""The offline page: attention maps in one HTML file that asks nothing of the network and trusts no text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from saccade.view.maps import AttentionMaps, Axis, Map

SCALE = 10_000  # weights travel as whole ten-thousandths: a third of the size of decimal fractions

# Inside a script element only these could end it early or be read as markup; JSON allows them as escapes.
UNSAFE_IN_SCRIPT = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def write_page(pages: Sequence[AttentionMaps], path: Path, title: str) -> Path:
    """Write one HTML file that shows the attention of each sentence; returns its path."""
    _write_whole(Path(path), page(pages, title))
    return Path(path)


def page(pages: Sequence[AttentionMaps], title: str) -> bytes:
    """The whole page."""
    style, script = _asset("page.css"), _asset("page.js")
    text = Template(_asset("page.html")).substitute(
        policy=_policy(style, script),
        title=html.escape(title),
        style=style,
        script=script,
        data=_embedded({"scale": SCALE, "sentences": [_sentence(each) for each in pages]}),
    )
    # A lone surrogate cannot be written as UTF-8; a question mark in the title is better than no page.
    return text.encode("utf-8", errors="replace")


def _asset(name: str) -> str:
    return files("saccade.view").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Only our own style and script may act: no network, no inline handlers, nothing from the data."""
    return (
        f"default-src 'none'; style-src '{_fingerprint(style)}'; script-src '{_fingerprint(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _fingerprint(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _embedded(value: dict[str, Any]) -> str:
    """JSON that stays data inside a script element, whatever the sentences say."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(UNSAFE_IN_SCRIPT)


def _sentence(maps: AttentionMaps) -> dict[str, Any]:
    levels = {"pieces": [_map(name, each) for name, each in maps.maps.items()]}
    if any(_has_split_words(each) for each in maps.maps.values()):
        # Both levels are written out, so that merging is done in one place only: `Map.words`.
        levels["words"] = [_map(name, each) for name, each in maps.words().maps.items()]
    return {"source": maps.source, "target": maps.target, "levels": levels}


def _has_split_words(each: Map) -> bool:
    return any(len(axis.starts()) < len(axis) for axis in (each.rows, each.columns))


def _map(name: str, each: Map) -> dict[str, Any]:
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
    scaled = np.rint(np.where(finite, weights, 0).astype(np.float64) * SCALE).astype(np.int64)
    if finite.all():
        return scaled.tolist()
    with_gaps = scaled.astype(object)
    with_gaps[~finite] = None
    return with_gaps.tolist()


def _write_whole(path: Path, content: bytes) -> None:
    """A reader sees the old page or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
