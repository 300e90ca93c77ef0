"""Readouts: from a recurrent decoder's state, context and input token to the hidden vector for the head."""

from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Slot
from saccade.parts.inits import linear_layer
from saccade.shapes import Float, States


class Readout(Protocol):
    """The contract of a readout: (cell state, context, embedding of the input token) → hidden [B T D]. The context may
    have width 0."""

    def __call__(self, state: States, context: Float[Tensor, "B T C"], token: States) -> States: ...


class PlainReadout(nn.Module):
    """hidden = state (Sutskever, Vinyals & Le 2014)."""

    def forward(self, state: States, context: Float[Tensor, "B T C"], token: States) -> States:
        return state


class Attentional(nn.Module):
    """hidden = tanh(W [state; context] + b) (Luong, Pham & Manning 2015, eq. 5)."""

    def __init__(self, dim: int, context: int):
        super().__init__()
        self.out = linear_layer(dim + context, dim)

    def forward(self, state: States, context: Float[Tensor, "B T C"], token: States) -> States:
        return torch.tanh(self.out(torch.cat([state, context], -1)))


class Deep(nn.Module):
    """hidden = tanh(W [state; context; token] + b): a deep output layer that also sees the input token (Pascanu et al.
    2014; Cho et al. 2014; Bahdanau et al. 2015), with tanh in place of their maxout."""

    def __init__(self, dim: int, context: int):
        super().__init__()
        self.out = linear_layer(2 * dim + context, dim)

    def forward(self, state: States, context: Float[Tensor, "B T C"], token: States) -> States:
        return torch.tanh(self.out(torch.cat([state, context, token], -1)))


READOUTS: dict[str, Callable[..., Readout]] = {"deep": Deep, "attentional": Attentional, "plain": PlainReadout}

ReadoutSlot = Annotated[Callable[..., Readout], Slot(READOUTS)]
