"""What layers pass to each other: `Places` (padding and positions), `Memory` (the encoder's output) and the decoder
state that decoding carries from step to step."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from saccade.shapes import AttentionMask, Bool, Float, Int, Keep


@dataclass(frozen=True)
class Progress:
    """How far the rows of a decoder are: the position of the next token of each row (rows with shorter prompts are
    behind), and an upper bound of all these positions, which is known without reading the tensor."""

    at: Int[Tensor, "B"]
    end: int

    @classmethod
    def begin(cls, rows: int, device: torch.device) -> "Progress":
        return cls(torch.zeros(rows, dtype=torch.long, device=device), 0)

    def after(self, places: "Places") -> "Progress":
        """The progress after these places."""
        length = places.at.shape[1]
        return Progress(self.at + (places.keep.sum(1) if places.padded else length), self.end + length)


@dataclass(frozen=True)
class Places:
    """The padding mask and the positions of a batch of sequences. Batches are padded on the right. Attention also takes
    padding on the left, and the keys of a cache may have it in the middle; recurrent nets refuse both."""

    keep: Bool[Tensor, "B S"]  # False = padding
    at: Int[Tensor, "B S"]  # the position of each vector in its sequence, from 0; padding does not count
    padded: bool  # False: there is no padding, so no padding mask is needed
    end: int  # every position is smaller; known without reading the tensor
    grid: tuple[int, int] | None = None  # the rows and columns of an image: position i is in row i // columns
    # the distance between each pair of positions of the whole sequence, as in a syntax tree
    links: Int[Tensor, "B N N"] | None = None

    @classmethod
    def of(cls, like: Tensor, keep: Keep | None, progress: Progress | None = None) -> "Places":
        """The places of a batch of sequences [B T …], which continue from `progress` (default: from position 0)."""
        rows, length = like.shape[0], like.shape[1]
        end = length + (progress.end if progress else 0)
        if keep is None:
            steps = torch.arange(length, device=like.device)
            at = steps.expand(rows, length) if progress is None else progress.at[:, None] + steps
            return cls(torch.ones(rows, length, dtype=torch.bool, device=like.device), at, False, end)
        before = keep.cumsum(1) - keep.long()  # the number of tokens before each position
        return cls(keep, before if progress is None else progress.at[:, None] + before, True, end)

    @property
    def padded_on_the_right(self) -> bool:
        """Whether no token has padding before it, so that position t of a row is at index t. Reads the mask."""
        return not self.padded or not bool((self.keep[:, 1:] & ~self.keep[:, :-1]).any())

    def one(self, t: int) -> "Places":
        """Only index t of each row."""
        end = self.end - self.at.shape[1] + t + 1
        return Places(self.keep[:, t : t + 1], self.at[:, t : t + 1], self.padded, end, self.grid, self.links)

    def extended(self, more: "Places") -> "Places":
        """These places and, after them, some more."""
        keep, at = torch.cat([self.keep, more.keep], 1), torch.cat([self.at, more.at], 1)
        return Places(keep, at, self.padded or more.padded, more.end, more.grid, more.links)


def attention_mask(queries: Places, keys: Places, causal: bool) -> AttentionMask | None:
    """The mask of an attention: True = the query may attend to the key. None if nothing is masked. All masks of the
    package are made here."""
    visible = keys.keep[:, None, None] if keys.padded else None
    if not causal or (queries.at.shape[1] == 1 and not keys.padded):  # a single new token attends to all before it
        return visible
    past = keys.at[:, None, None] <= queries.at[:, None, :, None]
    return past if visible is None else past & visible


@dataclass(frozen=True)
class Memory:
    """The output of an encoder: a hidden state for each position and, where anything reads them, one summary vector for
    each sequence, and `layers`: the embedded input and the output of each layer."""

    states: Float[Tensor, "B S D"]
    places: Places
    summary: Float[Tensor, "B D"] | None = None
    layers: tuple[Float[Tensor, "B S D"], ...] = ()


# What decoding carries from step to step: tensors and `PerSentence` in nested dicts, tuples and dataclasses. Each part
# knows the form of its own state; all others only pass it on.
DecoderState = Any


@dataclass(frozen=True)
class PerSentence:
    """State computed from the memory: one row per sentence, shared by all hypotheses of the sentence."""

    value: DecoderState


def select(state: DecoderState, rows: Tensor, sentences: Tensor | None = None) -> DecoderState:
    """Reorder the rows of a decoder state: row i of the result is row `rows[i]` of `state`. What is stored per sentence
    is not selected by `rows` but by `sentences`, the numbers of the sentences that stay in the batch (None: all of
    them, in the same order)."""

    def select_sentences(fixed: PerSentence, path: "StatePath") -> PerSentence:
        return fixed if sentences is None else PerSentence(select(fixed.value, sentences))

    # index_select is several times as fast as tensor[rows]
    return map_state(state, lambda tensor, path: tensor.index_select(0, rows), select_sentences)


StatePath = tuple[str, ...]  # the keys that lead to an entry of a nested state


def map_state(
    state: DecoderState,
    on_tensor: Callable[[Tensor, StatePath], DecoderState],
    on_per_sentence: Callable[[PerSentence, StatePath], DecoderState],
    path: StatePath = (),
) -> DecoderState:
    """A copy of a nested decoder state (dicts, tuples and dataclasses) in which each tensor and each `PerSentence` is
    replaced by the result of its function. Anything else stays as it is."""
    if isinstance(state, PerSentence):
        return on_per_sentence(state, path)
    if isinstance(state, Tensor):
        return on_tensor(state, path)
    if isinstance(state, dict):
        return {key: map_state(value, on_tensor, on_per_sentence, (*path, str(key))) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(map_state(value, on_tensor, on_per_sentence, (*path, str(i))) for i, value in enumerate(state))
    if is_dataclass(state) and not isinstance(state, type):
        values = {field.name: getattr(state, field.name) for field in fields(state)}
        return replace(state, **map_state(values, on_tensor, on_per_sentence, path))
    return state
