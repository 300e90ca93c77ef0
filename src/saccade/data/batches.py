"""Batches: rows of about equal length under a budget of tokens. Which rows, in which order, is a pure function of
(seed, epoch, position): the sampler's whole state is three numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from saccade.data.tokenizers import END, PAD, START
from saccade.shapes import Float, Ids, Keep


@dataclass(frozen=True)
class Side:
    """One side of a batch: ids [B T] or frames [B T F], and which of them are real (None: all)."""

    values: Ids | Float[Tensor, "B T F"]
    keep: Keep | None

    @classmethod
    def of(cls, rows: Sequence[np.ndarray]) -> "Side":
        """Rows of ids [T] or of frames [T F], padded on the right."""
        lengths = [len(row) for row in rows]
        longest = max(lengths, default=0)
        frames = rows[0].shape[1:] if rows else ()
        kind = np.float32 if frames else np.int64
        values = np.full((len(rows), longest, *frames), PAD, dtype=kind)
        for place, row in zip(values, rows, strict=True):
            place[: len(row)] = row
        short = min(lengths, default=0) < longest
        keep = np.arange(longest) < np.array(lengths)[:, None] if short else None
        return cls(torch.from_numpy(values), None if keep is None else torch.from_numpy(keep))


@dataclass(frozen=True)
class Batch:
    """What a model reads and should say. For a decoder: sources with their end symbol, `inputs` with `<s>` first,
    `outputs` with `</s>` last. Where there is none: `outputs` are labels, `keep` says which places have one."""

    rows: tuple[int, ...]  # of the corpus, for messages
    source: Side
    inputs: Side | None
    outputs: Side

    @property
    def source_tokens(self) -> int:
        return _real(self.source)

    @property
    def target_tokens(self) -> int:
        return _real(self.outputs)

    @property
    def padded_tokens(self) -> int:
        return _places(self.source) + _places(self.outputs)


def _places(side: Side) -> int:
    return side.values.shape[0] * side.values.shape[1]


def _real(side: Side) -> int:
    return _places(side) if side.keep is None else int(side.keep.sum())


class Corpus:
    """Encoded pairs, side by side in two flat arrays: a million sentences cost their tokens and little more."""

    def __init__(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]):
        self._source, self.source_lengths = _flat(sources)
        self._target, self.target_lengths = _flat(targets)
        self._source_at = np.concatenate([[0], np.cumsum(self.source_lengths)])
        self._target_at = np.concatenate([[0], np.cumsum(self.target_lengths)])

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, row: int) -> np.ndarray:
        return self._source[self._source_at[row] : self._source_at[row + 1]]

    def target(self, row: int) -> np.ndarray:
        return self._target[self._target_at[row] : self._target_at[row + 1]]

    def batch(self, rows: Sequence[int]) -> Batch:
        targets = [self.target(row) for row in rows]
        return Batch(
            tuple(rows),
            Side.of([np.append(self.source(row), END) for row in rows]),
            Side.of([np.concatenate([[START], target]) for target in targets]),
            Side.of([np.append(target, END) for target in targets]),
        )


def _flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    flat = np.fromiter((i for row in rows for i in row), dtype=np.int32, count=int(lengths.sum()))
    return flat, lengths


def by_length(corpus: Corpus, order: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Cut rows into batches of at most `tokens` padded tokens on the longer side, neighbours in length together."""
    source, target = corpus.source_lengths[order] + 1, corpus.target_lengths[order] + 1
    order = order[np.lexsort((target, source))]
    longest = np.maximum(corpus.source_lengths[order], corpus.target_lengths[order]) + 1
    batches, first, widest = [], 0, 0
    for i, length in enumerate(longest):
        widest = max(widest, int(length))
        if (i - first + 1) * widest > tokens and i > first:
            batches.append(order[first:i])
            first, widest = i, int(length)
    return [*batches, order[first:]] if len(order) else []


def epoch_batches(corpus: Corpus, tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    """The batches of an epoch in their order. Equal lengths are mixed anew in each epoch."""
    random = np.random.default_rng([seed, epoch])
    batches = by_length(corpus, random.permutation(len(corpus)), tokens)
    return [batches[i] for i in random.permutation(len(batches))]


@dataclass(frozen=True)
class Position:
    """Where training stands: the next batch is number `batch` of `epoch`."""

    epoch: int = 0
    batch: int = 0


def updates(
    corpus: Corpus, batch_tokens: int, update_tokens: int, seed: int, start: Position
) -> Iterator[tuple[list[Batch], Position]]:
    """For ever: the batches of one update (at least `update_tokens` target tokens, or what the epoch still has),
    and the position after it."""
    epoch, first = start.epoch, start.batch
    while True:
        plan = epoch_batches(corpus, batch_tokens, seed, epoch)
        while first < len(plan):
            batches: list[Batch] = []
            while first < len(plan) and sum(b.target_tokens for b in batches) < max(1, update_tokens):
                batches.append(corpus.batch(plan[first].tolist()))
                first += 1
            yield batches, Position(epoch, first) if first < len(plan) else Position(epoch + 1, 0)
        epoch, first = epoch + 1, 0
