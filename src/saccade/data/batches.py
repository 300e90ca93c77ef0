"""Batches: rows of about equal length under a budget of tokens. Which rows, in which order, is a pure function of
(seed, epoch, position): the sampler's whole state is three numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from saccade.data.tokenizers import END, PAD, START
from saccade.shapes import Float, Ids, Keep


@dataclass(frozen=True)
class Padded:
    """One side of a batch: ids [B T] or frames [B T F], and which of them are real (None: all)."""

    values: Ids | Float[Tensor, "B T F"]
    keep: Keep | None

    @classmethod
    def of(cls, rows: Sequence[np.ndarray]) -> "Padded":
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

    @property
    def lengths(self) -> np.ndarray:
        """The places of each row that are not padding."""
        rows, places = self.values.shape[:2]
        return np.full(rows, places) if self.keep is None else self.keep.sum(1).numpy()

    def rows(self, first: int, end: int) -> "Padded":
        """Some rows, cut to the longest of them."""
        longest = int(self.lengths[first:end].max(initial=0))
        keep = None if self.keep is None else self.keep[first:end, :longest]
        whole = keep is None or bool(keep.all())
        return Padded(self.values[first:end, :longest].contiguous(), None if whole else keep)

    def repeated(self) -> "Padded":
        """All rows, and then once more."""
        return Padded(torch.cat([self.values] * 2), None if self.keep is None else torch.cat([self.keep] * 2))

    def to(self, device: torch.device) -> "Padded":
        return Padded(self.values.to(device), None if self.keep is None else self.keep.to(device))


@dataclass(frozen=True)
class Batch:
    """What a model reads and should say. For a decoder: sources with their end symbol, `inputs` with `<s>` first,
    `outputs` with `</s>` last. Where there is none: `outputs` are labels, `keep` says which places have one."""

    rows: tuple[int, ...]  # of the corpus, for messages
    source: Padded
    inputs: Padded | None
    outputs: Padded
    links: Float[Tensor, "B T S"] | None = None  # how much each output belongs to each place of the source, if known
    idle: bool = False  # of no share: gone through because all ranks go together, and counted as nothing

    def to(self, device: torch.device) -> "Batch":
        inputs = None if self.inputs is None else self.inputs.to(device)
        links = None if self.links is None else self.links.to(device)
        return replace(self, source=self.source.to(device), inputs=inputs, outputs=self.outputs.to(device), links=links)

    def repeated(self) -> "Batch":
        """All rows, and then once more."""
        inputs = None if self.inputs is None else self.inputs.repeated()
        links = None if self.links is None else torch.cat([self.links] * 2)
        source, outputs = self.source.repeated(), self.outputs.repeated()
        return replace(self, rows=self.rows * 2, source=source, inputs=inputs, outputs=outputs, links=links)

    def split(self, count: int) -> "list[Batch]":
        """At most `count` batches of neighbouring rows with about equal lengths in all, each as wide as it needs."""
        lengths = self.source.lengths + (self.inputs.lengths if self.inputs else 0)
        return [self._rows(first, end) for first, end in pairwise(_even_cuts(lengths, count)) if end > first]

    def _rows(self, first: int, end: int) -> "Batch":
        source, outputs = self.source.rows(first, end), self.outputs.rows(first, end)
        links = self.links
        if links is not None:
            links = links[first:end, : outputs.values.shape[1], : source.values.shape[1]]
        inputs = None if self.inputs is None else self.inputs.rows(first, end)
        return replace(self, rows=self.rows[first:end], source=source, inputs=inputs, outputs=outputs, links=links)

    @property
    def source_tokens(self) -> int:
        return _real(self.source)

    @property
    def target_tokens(self) -> int:
        """What an update counts and a loss is a sum over: real tokens, or places that have a label."""
        return _real(self.outputs)

    @property
    def real_tokens(self) -> int:
        """Places that are not padding. Labels take none: they stand at the places of the source."""
        return self.source_tokens + (self.target_tokens if self.inputs else 0)

    @property
    def longer_places(self) -> int:
        """Of the side that has more."""
        return max(_places(self.source), _places(self.outputs))

    @property
    def padded_tokens(self) -> int:
        return _places(self.source) + (_places(self.outputs) if self.inputs else 0)


def _places(side: Padded) -> int:
    return side.values.shape[0] * side.values.shape[1]


def _real(side: Padded) -> int:
    return _places(side) if side.keep is None else int(side.keep.sum())


def _even_cuts(lengths: np.ndarray, count: int) -> list[int]:
    """Where to cut rows into so many parts of about equal lengths in all: the row each part begins with, and the end.
    Where there are more parts than rows, some are empty."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return [_nearest(ends, ends[-1] * part / count) for part in range(count + 1)]


def _nearest(ends: np.ndarray, wanted: float) -> int:
    """The number of the end that is nearest."""
    after = int(np.searchsorted(ends, wanted))
    return after if after == 0 or ends[after] - wanted < wanted - ends[after - 1] else after - 1


# ── how rows become a batch ───────────────────────────────────────────────────────────────────────


class Collate(Protocol):
    """How rows of a corpus are laid out as a batch; `beside` is how many symbols stand beside a row."""

    extra_tokens: int

    def __call__(self, rows: Sequence[int], sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Batch: ...


class CollatePairs:
    """For a decoder that writes the target: both sides end, and what is read of the target begins."""

    extra_tokens: int = 1

    def __call__(self, rows: Sequence[int], sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Batch:
        return Batch(
            tuple(rows),
            Padded.of([np.append(source, END) for source in sources]),
            Padded.of([np.concatenate([[START], target]) for target in targets]),
            Padded.of([np.append(target, END) for target in targets]),
        )


COLLATE_PAIRS = CollatePairs()
NO_LABEL = -1


class CollateLabels:
    """For a head that reads the encoder: the source as it is, and a label for each of its places or one for all.
    NO_LABEL is no label."""

    extra_tokens: int = 0

    def __call__(self, rows: Sequence[int], sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Batch:
        labels = Padded.of(targets)
        there = labels.values != NO_LABEL
        keep = there if labels.keep is None else there & labels.keep
        outputs = Padded(labels.values.clamp(min=0), None if bool(keep.all()) else keep)
        return Batch(tuple(rows), Padded.of(sources), None, outputs)


COLLATE_LABELS = CollateLabels()


# ── the corpus ────────────────────────────────────────────────────────────────────────────────────


class Corpus:
    """Encoded rows, side by side in two flat arrays: a million sentences cost their tokens and little more.
    Sources are ids [T] or frames [T F]; targets are ids. `links` [n 3] are places of source and target that belong
    together, and how surely (up to 1)."""

    def __init__(
        self,
        sources: Sequence[Sequence[int] | np.ndarray],
        targets: Sequence[Sequence[int] | np.ndarray],
        collate: Collate = COLLATE_PAIRS,
        links: Sequence[np.ndarray] | None = None,
    ):
        self._source, self.source_lengths = _flat(sources)
        self._target, self.target_lengths = _flat(targets)
        self._source_at = np.concatenate([[0], np.cumsum(self.source_lengths)])
        self._target_at = np.concatenate([[0], np.cumsum(self.target_lengths)])
        self.collate = collate
        self.links = links

    def __len__(self) -> int:
        return len(self.source_lengths)

    def target_tokens_of(self, rows: np.ndarray) -> int:
        """What a batch of these rows would count, without making it."""
        return sum(int((self.target(row) != NO_LABEL).sum()) + self.collate.extra_tokens for row in rows.tolist())

    @property
    def places(self) -> np.ndarray:
        """How many places each row takes on its longer side."""
        return np.maximum(self.source_lengths, self.target_lengths) + self.collate.extra_tokens

    @property
    def target_tokens(self) -> int:
        """Of all batches of an epoch."""
        return int((self._target != NO_LABEL).sum()) + self.collate.extra_tokens * len(self)

    def source(self, row: int) -> np.ndarray:
        return self._source[self._source_at[row] : self._source_at[row + 1]]

    def target(self, row: int) -> np.ndarray:
        return self._target[self._target_at[row] : self._target_at[row + 1]]

    def batch(self, rows: Sequence[int]) -> Batch:
        batch = self.collate(rows, [self.source(row) for row in rows], [self.target(row) for row in rows])
        if self.links is None:
            return batch
        places = batch.outputs.values.shape[1], batch.source.values.shape[1]
        return replace(batch, links=_shares([self.links[row] for row in rows], *places))


def _shares(links: Sequence[np.ndarray], outputs: int, places: int) -> Float[Tensor, "B T S"]:
    """Links [n 3] (source place, output, how surely) as shares: an output belongs to all its places together as surely
    as to the surest of them; one without any to none."""
    shares = np.zeros((len(links), outputs, places), dtype=np.float32)
    for row, linked in zip(shares, links, strict=True):
        source, output = linked[:, :2].astype(np.int64).T
        row[output, source] = linked[:, 2]
    total, surest = shares.sum(-1, keepdims=True), shares.max(-1, keepdims=True)
    return torch.from_numpy(shares * surest / np.where(total, total, 1))


def _flat(rows: Sequence[Sequence[int] | np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    if any(isinstance(row, np.ndarray) and row.ndim == 2 for row in rows):
        return np.concatenate([np.asarray(row, dtype=np.float32) for row in rows]), lengths
    flat = np.fromiter((i for row in rows for i in row), dtype=np.int32, count=int(lengths.sum()))
    return flat, lengths


def by_length(corpus: Corpus, order: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Cut rows into batches of at most `tokens` padded tokens on the longer side, neighbours in length together."""
    order = order[np.lexsort((corpus.target_lengths[order], corpus.source_lengths[order]))]
    batches, first, widest = [], 0, 0
    for i, length in enumerate(corpus.places[order]):
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
class SamplerState:
    """Where training stands: the next batch is number `batch` of `epoch`."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Shard:
    """What one of several ranks takes of each batch: number `rank` of `count` parts."""

    rank: int = 0
    count: int = 1

    def of(self, corpus: Corpus, rows: np.ndarray) -> np.ndarray:
        """Neighbours in length stay together, and the parts have about equal lengths in all."""
        longer = np.maximum(corpus.source_lengths[rows], corpus.target_lengths[rows]) + corpus.collate.extra_tokens
        cuts = _even_cuts(longer, self.count)
        return rows[cuts[self.rank] : cuts[self.rank + 1]]

    def batch(self, corpus: Corpus, rows: np.ndarray) -> Batch:
        """This part as a batch. Where there are more ranks than rows, some are idle."""
        mine = self.of(corpus, rows)
        return corpus.batch(mine.tolist()) if len(mine) else replace(corpus.batch(rows[:1].tolist()), idle=True)


WHOLE_BATCH = Shard()


def updates(
    corpus: Corpus, batch_tokens: int, update_tokens: int, seed: int, start: SamplerState, share: Shard = WHOLE_BATCH
) -> Iterator[tuple[list[Batch], SamplerState]]:
    """For ever: a share of the batches of one update (which have at least `update_tokens` target tokens, or what the
    epoch still has), and the position after it. Which rows an update has does not depend on how they are shared."""
    epoch, first = start.epoch, start.batch
    while True:
        plan = epoch_batches(corpus, batch_tokens, seed, epoch)
        while first < len(plan):
            batches: list[Batch] = []
            tokens = 0
            while first < len(plan) and tokens < max(1, update_tokens):
                batches.append(share.batch(corpus, plan[first]))
                tokens += corpus.target_tokens_of(plan[first])
                first += 1
            yield batches, SamplerState(epoch, first) if first < len(plan) else SamplerState(epoch + 1, 0)
        epoch, first = epoch + 1, 0
