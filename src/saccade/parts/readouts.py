"""Readouts: what a recurrent decoder says at a step, from its state, what it saw of the source, and what it read."""

from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Slot
from saccade.parts.inits import linear
from saccade.shapes import Float, States


class Readout(Protocol):
    """The contract of a readout. `context` may have no columns at all."""

    def __call__(self, state: States, context: Float[Tensor, "B T C"], word: States) -> States: ...


class PlainReadout(nn.Module):
    """The state itself (Sutskever, Vinyals & Le 2014)."""

    def forward(self, state: States, context: Float[Tensor, "B T C"], word: States) -> States:
        return state


class Attentional(nn.Module):
    """tanh(W [state; context]) (Luong, Pham & Manning 2015, eq. 5)."""

    def __init__(self, dim: int, context: int):
        super().__init__()
        self.out = linear(dim + context, dim)

    def forward(self, state: States, context: Float[Tensor, "B T C"], word: States) -> States:
        return torch.tanh(self.out(torch.cat([state, context], -1)))


class Deep(nn.Module):
    """tanh(W [state; context; word]): the word just read reaches the choice of the next directly (the deep output of
    Pascanu et al. 2014, as in Cho et al. 2014 and Bahdanau et al. 2015, with tanh for their maxout)."""

    def __init__(self, dim: int, context: int):
        super().__init__()
        self.out = linear(2 * dim + context, dim)

    def forward(self, state: States, context: Float[Tensor, "B T C"], word: States) -> States:
        return torch.tanh(self.out(torch.cat([state, context, word], -1)))


READOUTS: dict[str, Callable[..., nn.Module]] = {"deep": Deep, "attentional": Attentional, "plain": PlainReadout}

ReadoutSlot = Annotated[Callable[..., nn.Module], Slot(READOUTS)]
