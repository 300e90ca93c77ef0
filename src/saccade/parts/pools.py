"""Pools: hidden states [B T D] → one vector per sequence [B D]. Padding does not count."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Slot
from saccade.places import Places
from saccade.shapes import Float, States


class Pool(Protocol):
    """The contract of a pool. T is at least 1; a row that is all padding gives zeros."""

    def __call__(self, states: States, places: Places) -> Float[Tensor, "B D"]: ...


class Mean(nn.Module):
    """The mean over all positions that are not padding."""

    def forward(self, states: States, places: Places) -> Float[Tensor, "B D"]:
        if not places.padded:
            return states.mean(1)
        keep = places.keep[..., None]
        return (states * keep).sum(1) / keep.sum(1).clamp(min=1)


class Max(nn.Module):
    """The maximum of each feature over all positions that are not padding (Collobert & Weston 2008)."""

    def forward(self, states: States, places: Places) -> Float[Tensor, "B D"]:
        if not places.padded:
            return states.amax(1)
        top = states.masked_fill(~places.keep[..., None], -math.inf).amax(1)
        return top.masked_fill(~places.keep.any(1, keepdim=True), 0.0)


class First(nn.Module):
    """The state at the first position."""

    def forward(self, states: States, places: Places) -> Float[Tensor, "B D"]:
        return states[:, 0] * places.keep[:, :1]


class Last(nn.Module):
    """The state at the last position that is not padding. For the backward half of a bidirectional cell it is the
    state at the first position, where that direction ends (Bahdanau, Cho & Bengio 2015)."""

    def __init__(self, backward_width: int = 0):
        super().__init__()
        self.backward_width = backward_width

    def forward(self, states: States, places: Places) -> Float[Tensor, "B D"]:
        last = (places.keep.sum(1) - 1).clamp(min=0)
        pooled = states[torch.arange(states.shape[0], device=states.device), last]
        if self.backward_width:
            forward_width = states.shape[-1] - self.backward_width
            pooled = torch.cat([pooled[:, :forward_width], states[:, 0, forward_width:]], -1)
        return pooled * places.keep[:, :1]


POOLS: dict[str, Callable[..., Pool]] = {"mean": Mean, "max": Max, "first": First, "last": Last}

PoolSlot = Annotated[Callable[..., Pool], Slot(POOLS)]
