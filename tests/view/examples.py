"""Attention maps that several test files use."""

from __future__ import annotations

import numpy as np

from saccade.view.maps import AttentionMap, AttentionMaps, Axis

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><!--\u2028&amp;"


def random_weights(shape: tuple[int, int, int], seed: int) -> np.ndarray:
    """Weights [heads, rows, columns] whose rows sum to one."""
    noise = np.random.default_rng(seed).random(shape)
    return (noise / noise.sum(axis=-1, keepdims=True)).astype(np.float32)


def example(extra: str = "lo") -> AttentionMaps:
    """Two layers of three heads over "Hallo Welt" and "hello world"; one word of each has two pieces."""
    source = Axis(("Hal", extra, "Welt", "</s>"), (0, 0, 1, 2))
    target = Axis(("hello", "wor", "ld", "</s>"), (0, 1, 1, 2))
    maps = {}
    for layer in range(2):
        for name, rows, columns, kind in (
            (f"encoder.layers.{layer}.self", source, source, "encoder"),
            (f"decoder.layers.{layer}.self", target, target, "decoder"),
            (f"decoder.layers.{layer}.cross", target, source, "cross"),
        ):
            maps[name] = AttentionMap(random_weights((3, len(rows), len(columns)), len(maps)), rows, columns, kind)
    return AttentionMaps("Hal" + extra + " Welt", "hello world", maps)
