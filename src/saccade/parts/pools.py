"""Pools: one vector for a whole sequence. Padding has no part in it."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Slot
from saccade.places import Places
from saccade.shapes import Float, States


class Pool(Protocol):
    """The contract of a pool. There is at least one place; a sequence of padding alone gives zeros."""

    def __call__(self, states: States, places: Places) -> Float[Tensor, "B D"]: ...


class Mean(nn.Module):
    """The mean of all places."""

    def forward(self, states: States, places: Places) -> Float[Tensor, "B D"]:
        if not places.padded:
            return states.mean(1)
        keep = places.keep[..., None]
        return (states * keep).sum(1) / keep.sum(1).clamp(min=1)


class Max(nn.Module):
    """The largest number of each column over all places (Collobert & Weston 2008)."""

    def forward(self, states: States, places: Places) -> Float[Tensor, "B D"]:
        if not places.padded:
            return states.amax(1)
        top = states.masked_fill(~places.keep[..., None], -math.inf).amax(1)
        return top.masked_fill(~places.keep.any(1, keepdim=True), 0.0)


class First(nn.Module):
    """The state at the first place."""

    def forward(self, states: States, places: Places) -> Float[Tensor, "B D"]:
        return states[:, 0] * places.keep[:, :1]


class Last(nn.Module):
    """The state at the last real place. Of `backwards` columns, which were read from right to left, it is the state at
    the first place: so the last states of a bidirectional net come together (Bahdanau, Cho & Bengio 2015)."""

    def __init__(self, backward_width: int = 0):
        super().__init__()
        self.backward_width = backward_width

    def forward(self, states: States, places: Places) -> Float[Tensor, "B D"]:
        last = (places.keep.sum(1) - 1).clamp(min=0)
        there = states[torch.arange(states.shape[0], device=states.device), last]
        if self.backward_width:
            forwards = states.shape[-1] - self.backward_width
            there = torch.cat([there[:, :forwards], states[:, 0, forwards:]], -1)
        return there * places.keep[:, :1]


POOLS: dict[str, Callable[..., nn.Module]] = {"mean": Mean, "max": Max, "first": First, "last": Last}

PoolSlot = Annotated[Callable[..., nn.Module], Slot(POOLS)]
