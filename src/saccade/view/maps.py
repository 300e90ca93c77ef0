"""Attention maps of one sentence: weights by module name, with the pieces of text on both axes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from saccade.errors import SaccadeError

ATTENTION_KINDS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Axis:
    """The pieces along one axis of a map, and for each piece the index of its word."""

    labels: tuple[str, ...]
    words: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.words):
            raise ValueError(f"{len(self.labels)} labels but {len(self.words)} word indices")
        if self.words and self.words[0] != 0:
            raise ValueError(f"word indices start at 0, got {self.words[0]}")
        if any(after < before for before, after in pairwise(self.words)):
            raise ValueError(f"word indices must not decrease: {self.words}")

    def __len__(self) -> int:
        return len(self.labels)

    def word_starts(self) -> np.ndarray:
        """The position of the first piece of each word."""
        words = np.asarray(self.words, dtype=np.int64)
        return np.flatnonzero(np.diff(words, prepend=-1))

    def merged(self) -> Axis:
        """The same text with one label for each word."""
        edges = [*self.word_starts().tolist(), len(self)]
        labels = tuple("".join(self.labels[start:end]) for start, end in pairwise(edges))
        return Axis(labels, tuple(range(len(labels))))


@dataclass(frozen=True, eq=False)  # `==` of arrays gives an array, so maps are compared by identity
class AttentionMap:
    """The weights of one attention: `weights[head, row, column]` is the weight of the column's piece (the key) for the
    row's piece (the query). `kind` is one of ATTENTION_KINDS."""

    weights: np.ndarray
    rows: Axis
    columns: Axis
    kind: str

    def __post_init__(self) -> None:
        if self.kind not in ATTENTION_KINDS:
            raise ValueError(f"unknown kind of attention '{self.kind}'; kinds are {', '.join(ATTENTION_KINDS)}")
        shape = (len(self.rows), len(self.columns))
        if self.weights.ndim != 3 or self.weights.shape[1:] != shape:
            raise ValueError(f"weights {self.weights.shape} do not fit axes [heads, {shape[0]}, {shape[1]}]")

    def words(self) -> AttentionMap:
        """Merge pieces into words: sum over the pieces of a key word, average over the pieces of a query word. Rows
        that sum to one still do."""
        row_starts, column_starts = self.rows.word_starts(), self.columns.word_starts()
        # In double precision, so that sums over words of many pieces do not lose accuracy.
        sums = np.add.reduceat(self.weights.astype(np.float64), column_starts, axis=2)
        sums = np.add.reduceat(sums, row_starts, axis=1)
        pieces_per_row = np.diff(row_starts, append=len(self.rows))
        means = (sums / pieces_per_row[:, None]).astype(np.float32)
        return AttentionMap(means, self.rows.merged(), self.columns.merged(), self.kind)


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """All attention maps of one forward pass over a sentence and its translation, by module name."""

    source: str
    target: str
    maps: dict[str, AttentionMap]

    def __getitem__(self, name: str) -> AttentionMap:
        if name not in self.maps:
            raise KeyError(f"there is no attention map '{name}'; available maps: {', '.join(self.maps) or 'none'}")
        return self.maps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.maps)

    def __len__(self) -> int:
        return len(self.maps)

    def words(self) -> AttentionMaps:
        """The same maps with one row or column for each word (see `AttentionMap.words`)."""
        return replace(self, maps={name: attention.words() for name, attention in self.maps.items()})

    def mean(self, kind: str = "cross") -> AttentionMap:
        """The average over all heads of all layers of one kind, as a map with a single head."""
        chosen = [attention for attention in self.maps.values() if attention.kind == kind]
        if not chosen:
            available = ", ".join(sorted({attention.kind for attention in self.maps.values()})) or "none"
            raise SaccadeError(f"no attention of kind '{kind}' to average; available kinds: {available}")
        shapes = {attention.weights.shape[1:] for attention in chosen}
        if len(shapes) > 1:
            raise SaccadeError(f"cannot average: '{kind}' attention differs in size between layers: {sorted(shapes)}")
        heads = np.concatenate([attention.weights for attention in chosen])
        average = heads.mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32)
        return replace(chosen[0], weights=average)

    def save(self, path: str | os.PathLike[str], title: str = "Attention") -> Path:
        """Write one HTML file that shows these maps in any browser, without a network."""
        from saccade.view.page import write_page  # imported here because page.py imports this module

        return write_page([self], Path(path), title)
