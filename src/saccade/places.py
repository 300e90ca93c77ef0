"""What flows between layers: places, memory, and the state that decoding carries from step to step."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from saccade.shapes import AttentionMask, Bool, Float, Int, Keep


@dataclass(frozen=True)
class Places:
    """What is known of a sequence beside its vectors. Padding stands on the right."""

    keep: Bool[Tensor, "B S"]  # False = padding
    at: Int[Tensor, "B S"]  # the place of each vector in its sequence, from 0
    padded: bool  # False: nothing is hidden, so no mask need be built

    @classmethod
    def of(cls, like: Tensor, keep: Keep | None, start: Int[Tensor, "B"] | None = None) -> "Places":
        """The places of a batch of sequences [B T …] that begin at `start`."""
        rows, length = like.shape[0], like.shape[1]
        steps = torch.arange(length, device=like.device)
        at = steps.expand(rows, length) if start is None else start[:, None] + steps
        if keep is None:
            return cls(torch.ones(rows, length, dtype=torch.bool, device=like.device), at, padded=False)
        return cls(keep, at, padded=True)

    def one(self, t: int) -> "Places":
        """The place number t of each row."""
        return Places(self.keep[:, t : t + 1], self.at[:, t : t + 1], self.padded)

    def last(self, count: int) -> "Places":
        """The last `count` places up to here. A cache is contiguous and unpadded, so it stores no places."""
        if count == self.at.shape[1]:
            return self
        at = self.at[:, -1:] - torch.arange(count - 1, -1, -1, device=self.at.device)
        return Places(torch.ones_like(at, dtype=torch.bool), at, padded=False)


def attention_mask(queries: Places, keys: Places, causal: bool) -> AttentionMask | None:
    """The one place where masks are made: True = may look. None when nothing is hidden."""
    visible = keys.keep[:, None, None] if keys.padded else None
    if not causal or (queries.at.shape[1] == 1 and not keys.padded):  # one new place may see all that came before
        return visible
    past = keys.at[:, None, None] <= queries.at[:, None, :, None]
    return past if visible is None else past & visible


@dataclass(frozen=True)
class Memory:
    """What an encoder hands on: a state for each place, and one vector that sums all of it up."""

    states: Float[Tensor, "B S D"]
    places: Places
    summary: Float[Tensor, "B D"]


@dataclass(frozen=True)
class PerSentence:
    """State that a memory gave: one row a sentence, however many hypotheses look at it."""

    value: Any


def select(state: Any, rows: Tensor, sentences: Tensor | None = None) -> Any:
    """Search's whole knowledge of a state: hypotheses move to `rows`; sentences stay unless some are left out."""
    if isinstance(state, PerSentence):
        return state if sentences is None else PerSentence(select(state.value, sentences))
    if isinstance(state, Tensor):
        return state.index_select(0, rows)  # several times as fast as state[rows]
    if isinstance(state, dict):
        return {key: select(value, rows, sentences) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(select(value, rows, sentences) for value in state)
    if is_dataclass(state) and not isinstance(state, type):
        moved = {f.name: select(getattr(state, f.name), rows, sentences) for f in fields(state)}
        return replace(state, **moved)
    return state
