"""Batches: rows of similar length, up to a number of padded tokens. The rows of a batch are a pure function of
(seed, epoch, batch number), so these three integers are the whole state of the sampler."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from saccade.data.flat_rows import FlatRows
from saccade.data.length_order import cut_by_tokens, shuffled_rows, sorted_by_length
from saccade.data.tokenizers import END, PAD, START
from saccade.shapes import Float, Ids, Keep


@dataclass(frozen=True)
class Padded:
    """One side of a batch: ids [B T] or frames [B T F], and the padding mask (True = real; None: no padding)."""

    values: Ids | Float[Tensor, "B T F"]
    keep: Keep | None

    @classmethod
    def of(cls, rows: Sequence[np.ndarray]) -> "Padded":
        """Pad rows of ids [T] or of frames [T F] on the right."""
        lengths = [len(row) for row in rows]
        longest = max(lengths, default=0)
        frame_shape = rows[0].shape[1:] if rows else ()
        values = np.full((len(rows), longest, *frame_shape), PAD, dtype=np.float32 if frame_shape else np.int64)
        for padded, row in zip(values, rows, strict=True):
            padded[: len(row)] = row
        needs_padding = min(lengths, default=0) < longest
        keep = np.arange(longest) < np.array(lengths)[:, None] if needs_padding else None
        return cls(torch.from_numpy(values), None if keep is None else torch.from_numpy(keep))

    @property
    def lengths(self) -> np.ndarray:
        """The length of each row of what a model reads, without padding. The mask of targets says nothing about it."""
        rows, width = self.values.shape[:2]
        return np.full(rows, width) if self.keep is None else self.keep.sum(1).numpy()

    def rows(self, first: int, end: int) -> "Padded":
        """Rows `first` to `end`, cut to the longest of them."""
        return self.cut(first, end, int(self.lengths[first:end].max(initial=0)))

    def cut(self, first: int, end: int, width: int) -> "Padded":
        """The first `width` positions of rows `first` to `end`."""
        keep = None if self.keep is None else self.keep[first:end, :width]
        unpadded = keep is None or bool(keep.all())
        return Padded(self.values[first:end, :width].contiguous(), None if unpadded else keep)

    def doubled(self) -> "Padded":
        """All rows, followed by the same rows again."""
        return Padded(torch.cat([self.values] * 2), None if self.keep is None else torch.cat([self.keep] * 2))

    def to(self, device: torch.device) -> "Padded":
        if self.values.device == device:
            return self
        return Padded(self.values.to(device), None if self.keep is None else self.keep.to(device))


@dataclass(frozen=True)
class Batch:
    """The inputs and targets of a training step.

    Sequence to sequence: the source ends with `</s>`, `inputs` are the decoder inputs (`<s>` first) and `outputs` the
    targets (`</s>` last). Without an encoder: `source` is None, the source is the beginning of `inputs`, and the `keep`
    of `outputs` is False there. Without a decoder: `inputs` is None, `outputs` are labels, and their `keep` is False
    where a position has no label.
    """

    rows: tuple[int, ...]  # row numbers in the corpus, for messages
    source: Padded | None
    inputs: Padded | None
    outputs: Padded
    links: Float[Tensor, "B T S"] | None = None  # soft word alignment: weight of each source position for each output
    idle: bool = False  # a dummy batch for a rank without rows: computed to join the collectives, counts as zero

    def to(self, device: torch.device) -> "Batch":
        source = None if self.source is None else self.source.to(device)
        inputs = None if self.inputs is None else self.inputs.to(device)
        links = None if self.links is None else self.links.to(device)
        return replace(self, source=source, inputs=inputs, outputs=self.outputs.to(device), links=links)

    def doubled(self) -> "Batch":
        """All rows, followed by the same rows again (for R-Drop)."""
        source = None if self.source is None else self.source.doubled()
        inputs = None if self.inputs is None else self.inputs.doubled()
        links = None if self.links is None else torch.cat([self.links] * 2)
        outputs = self.outputs.doubled()
        return replace(self, rows=self.rows * 2, source=source, inputs=inputs, outputs=outputs, links=links)

    def split(self, count: int) -> "list[Batch]":
        """Split into at most `count` batches of consecutive rows with about the same number of tokens. Each is cut to
        its own longest row."""
        lengths = np.sum([side.lengths for side in self._read], 0)
        return [self._rows(first, end) for first, end in pairwise(_even_cuts(lengths, count)) if end > first]

    def _rows(self, first: int, end: int) -> "Batch":
        source = None if self.source is None else self.source.rows(first, end)
        inputs = None if self.inputs is None else self.inputs.rows(first, end)
        read = inputs or source  # what has a position for each target
        assert read is not None
        outputs, links = self.outputs.cut(first, end, read.values.shape[1]), self.links
        if links is not None and source is not None:
            links = links[first:end, : outputs.values.shape[1], : source.values.shape[1]]
        return replace(self, rows=self.rows[first:end], source=source, inputs=inputs, outputs=outputs, links=links)

    @property
    def _read(self) -> list[Padded]:
        """What the model reads: the source, the decoder input, or both."""
        return [side for side in (self.source, self.inputs) if side is not None]

    @property
    def source_tokens(self) -> int:
        return self.real_tokens - self.target_tokens if self.inputs else self.real_tokens

    @property
    def target_tokens(self) -> int:
        """The number of targets, over which the loss is summed: tokens without padding, or labeled positions."""
        return _unpadded_positions(self.outputs)

    @property
    def real_tokens(self) -> int:
        """Positions that are not padding, on both sides. Labels do not count: they belong to source positions."""
        return sum(map(_unpadded_positions, self._read))

    @property
    def longer_side_tokens(self) -> int:
        """Positions, padding included, of the side that has more of them."""
        return max(_positions(side) for side in (*self._read, self.outputs))

    @property
    def padded_tokens(self) -> int:
        """Positions, padding included, on both sides."""
        return sum(map(_positions, self._read))


def _positions(side: Padded) -> int:
    return side.values.shape[0] * side.values.shape[1]


def _unpadded_positions(side: Padded) -> int:
    return _positions(side) if side.keep is None else int(side.keep.sum())


def _even_cuts(lengths: np.ndarray, count: int) -> list[int]:
    """Cut consecutive rows into `count` parts with about the same total length: the first row of each part, and the
    number of rows. If there are more parts than rows, some are empty."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return [_nearest_index(ends, ends[-1] * part / count) for part in range(count + 1)]


def _nearest_index(ends: np.ndarray, target: float) -> int:
    """The index of the value in sorted `ends` that is nearest to the target."""
    after = int(np.searchsorted(ends, target))
    return after if after == 0 or ends[after] - target < target - ends[after - 1] else after - 1


# ── collate functions ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Draws:
    """The random numbers of collate functions. Those of a row are a pure function of (seed, epoch, row, purpose): they
    do not depend on the other rows of the batch, on the ranks, or on an interruption. `training`: whether the batch is
    for training; data augmentation leaves others unchanged."""

    seed: int
    epoch: int
    training: bool = True

    def generator(self, row: int, purpose: str) -> np.random.Generator:
        """A new generator for this row. Collate functions that wrap each other name different purposes, so that their
        draws are independent."""
        # unlike a longer seed, a spawn key cannot give the generator that shuffles the epoch
        key = (row, zlib.crc32(purpose.encode()))
        return np.random.default_rng(np.random.SeedSequence([self.seed, self.epoch], spawn_key=key))


EVALUATION_DRAWS = Draws(seed=0, epoch=0, training=False)


class Collate(Protocol):
    """Makes a batch of rows of a corpus; whatever is random comes from `draws`. `extra_tokens` is the number of special
    tokens that it adds to the targets. `lengths` are the lengths of the longer side of rows with these sources and
    targets, special tokens included."""

    extra_tokens: int

    def lengths(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray: ...
    def __call__(
        self, rows: Sequence[int], sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], draws: Draws
    ) -> Batch: ...


class CollatePairs:
    """For an encoder-decoder: `</s>` after source and target, and `<s>` before the decoder input."""

    extra_tokens: int = 1

    def lengths(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.maximum(sources, targets) + 1

    def __call__(
        self, rows: Sequence[int], sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], draws: Draws
    ) -> Batch:
        return Batch(
            tuple(rows),
            Padded.of([np.append(source, END) for source in sources]),
            Padded.of([np.concatenate([[START], target]) for target in targets]),
            Padded.of([np.append(target, END) for target in targets]),
        )


COLLATE_PAIRS = CollatePairs()


class CollatePrompted:
    """For a decoder without an encoder: source, `</s>`, `<s>` and target in one sequence. The source is the prompt: the
    loss counts only the target and its `</s>`."""

    extra_tokens: int = 1

    def lengths(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return sources + targets + 2

    def __call__(
        self, rows: Sequence[int], sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], draws: Draws
    ) -> Batch:
        pairs = list(zip(sources, targets, strict=True))
        inputs = Padded.of([np.concatenate([source, [END, START], target]) for source, target in pairs])
        outputs = Padded.of([np.concatenate([source, [END], target, [END]]) for source, target in pairs])
        positions = np.arange(outputs.values.shape[1])
        first = np.array([len(source) + 1 for source in sources])[:, None]
        end = np.array([len(source) + len(target) + 2 for source, target in pairs])[:, None]
        is_target = torch.from_numpy((positions >= first) & (positions < end))
        return Batch(tuple(rows), None, inputs, Padded(outputs.values, is_target))


COLLATE_PROMPTED = CollatePrompted()
NO_LABEL = -1
CHUNK_IDS = 1 << 22  # ids compared at once


class CollateLabels:
    """For a head on the encoder: the source unchanged, and one label for each position or for the whole row. NO_LABEL
    marks positions without a label."""

    extra_tokens: int = 0

    def lengths(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.maximum(sources, targets)

    def __call__(
        self, rows: Sequence[int], sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], draws: Draws
    ) -> Batch:
        labels = Padded.of(targets)
        labeled = labels.values != NO_LABEL
        keep = labeled if labels.keep is None else labeled & labels.keep
        outputs = Padded(labels.values.clamp(min=0), None if bool(keep.all()) else keep)
        return Batch(tuple(rows), Padded.of(sources), None, outputs)


COLLATE_LABELS = CollateLabels()


# ── the corpus ────────────────────────────────────────────────────────────────────────────────────


class Corpus:
    """Encoded rows. Each side is one flat array, which may be a memory-mapped file.

    Sources are ids [T] or frames [T F]; targets are ids [T]. `links` of a row [n 3] are its word alignment: source
    position, target position and confidence (up to 1).
    """

    def __init__(
        self,
        sources: FlatRows | Sequence[Sequence[int] | np.ndarray],
        targets: FlatRows | Sequence[Sequence[int] | np.ndarray],
        collate: Collate = COLLATE_PAIRS,
        links: Sequence[np.ndarray] | None = None,
    ):
        self.sources = sources if isinstance(sources, FlatRows) else FlatRows.of(sources)
        self.targets = targets if isinstance(targets, FlatRows) else FlatRows.of(targets)
        self.source_lengths, self.target_lengths = self.sources.lengths, self.targets.lengths
        self.collate = collate
        self.links = links

    def __len__(self) -> int:
        return len(self.source_lengths)

    def target_tokens_of(self, rows: np.ndarray) -> int:
        """The `target_tokens` of a batch of these rows, without making the batch."""
        return sum(int((self.target(row) != NO_LABEL).sum()) + self.collate.extra_tokens for row in rows.tolist())

    @property
    def lengths(self) -> np.ndarray:
        """The length of the longer side of each row, special tokens included."""
        return self.collate.lengths(self.source_lengths, self.target_lengths)

    def lengths_of(self, rows: np.ndarray) -> np.ndarray:
        """The `lengths` of some rows."""
        return self.collate.lengths(self.source_lengths[rows], self.target_lengths[rows])

    @property
    def target_tokens(self) -> int:
        """The number of targets in an epoch."""
        ids = self.targets.values
        chunks = (ids[first : first + CHUNK_IDS] for first in range(0, len(ids), CHUNK_IDS))
        return sum(int(np.count_nonzero(chunk != NO_LABEL)) for chunk in chunks) + self.collate.extra_tokens * len(self)

    def source(self, row: int) -> np.ndarray:
        return self.sources[row]

    def target(self, row: int) -> np.ndarray:
        return self.targets[row]

    def batch(self, rows: Sequence[int], draws: Draws = EVALUATION_DRAWS) -> Batch:
        batch = self.collate(rows, [self.source(row) for row in rows], [self.target(row) for row in rows], draws)
        if self.links is None or batch.source is None:
            return batch
        outputs, positions = batch.outputs.values.shape[1], batch.source.values.shape[1]
        return replace(batch, links=_alignment_weights([self.links[row] for row in rows], outputs, positions))


def _alignment_weights(links: Sequence[np.ndarray], outputs: int, positions: int) -> Float[Tensor, "B T S"]:
    """Links [n 3] (source position, output, confidence) as weights [B T S]. The weights of an output are proportional
    to the confidences of its links and sum to the highest of them; those of an output without links are zero."""
    weights = np.zeros((len(links), outputs, positions), dtype=np.float32)
    for row, row_links in zip(weights, links, strict=True):
        source, output = row_links[:, :2].astype(np.int64).T
        row[output, source] = row_links[:, 2]
    total, highest = weights.sum(-1, keepdims=True), weights.max(-1, keepdims=True)
    return torch.from_numpy(weights * highest / np.where(total, total, 1))


# ── sampling ──────────────────────────────────────────────────────────────────────────────────────


def by_length(corpus: Corpus, order: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Sort rows by length and cut them into batches of at most `tokens` padded tokens on the longer side."""
    order = sorted_by_length(order, corpus.source_lengths, corpus.target_lengths)
    return cut_by_tokens(order, corpus.lengths_of, tokens)


def epoch_batches(corpus: Corpus, tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    """The batches of an epoch, shuffled. Rows of equal length are shuffled among the batches, too."""
    random = np.random.default_rng([seed, epoch])
    batches = by_length(corpus, shuffled_rows(len(corpus), random), tokens)
    return [batches[i] for i in random.permutation(len(batches))]


@dataclass(frozen=True)
class SamplerState:
    """The position of training: the next batch is number `batch` of `epoch`."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Shard:
    """The part of each batch that one of several ranks trains on: number `rank` of `count` parts."""

    rank: int = 0
    count: int = 1

    def of(self, corpus: Corpus, rows: np.ndarray) -> np.ndarray:
        """The rows of this rank: consecutive, and about the same number of tokens for each rank."""
        cuts = _even_cuts(corpus.lengths_of(rows), self.count)
        return rows[cuts[self.rank] : cuts[self.rank + 1]]

    def batch(self, corpus: Corpus, rows: np.ndarray, draws: Draws) -> Batch:
        """The batch of this rank. If there are more ranks than rows, it may be an idle one."""
        own = self.of(corpus, rows)
        return replace(corpus.batch((own if len(own) else rows[:1]).tolist(), draws), idle=not len(own))


WHOLE_BATCH = Shard()


def updates(
    corpus: Corpus, batch_tokens: int, update_tokens: int, seed: int, start: SamplerState, shard: Shard = WHOLE_BATCH
) -> Iterator[tuple[list[Batch], SamplerState]]:
    """Endlessly yield the batches of one update and the sampler state after it.

    An update accumulates batches until they have at least `update_tokens` target tokens or the epoch ends. Its rows do
    not depend on the sharding.
    """
    epoch, first = start.epoch, start.batch
    while True:
        plan = epoch_batches(corpus, batch_tokens, seed, epoch)
        while first < len(plan):
            batches: list[Batch] = []
            tokens = 0
            while first < len(plan) and tokens < max(1, update_tokens):
                batches.append(shard.batch(corpus, plan[first], Draws(seed, epoch)))
                tokens += corpus.target_tokens_of(plan[first])
                first += 1
            yield batches, SamplerState(epoch, first) if first < len(plan) else SamplerState(epoch + 1, 0)
        epoch, first = epoch + 1, 0
        del plan  # before the next one is made: each takes 4 bytes a row
