"""Parts that exist only in tests, because the parts that need the same contracts are not built yet."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import Count, Rate
from saccade.notes import RecordingModule
from saccade.parts import MultiHead, RandomModule
from saccade.places import Memory, Places

BALANCE = 0.3


class ToyLayerMean(MultiHead):
    """Cross-attention to the mean of the encoder's states, its embedded input and the outputs of all its layers."""

    reads_layers = True

    def start(self, memory: Memory | None, rows: int) -> Any:
        assert memory is not None
        return super().start(replace(memory, states=torch.stack([memory.states, *memory.layers]).mean(0)), rows)


class ToyRouter(RandomModule, RecordingModule):
    """A feed-forward of two experts, whose matrices are stacked: y = Σₑ pₑ · relu(x Uₑ) Dₑ with p = softmax(route(x)).

    It notes the loss BALANCE · Σₑ pₑ² of each position, as a router notes a loss that balances its experts. In
    training its input is multiplied by random numbers between 1 − jitter and 1 + jitter (Fedus, Zoph & Shazeer 2022).
    """

    stacked_matrices = ("up", "down")

    def __init__(self, dim: int, *, inner: Count = 7, jitter: Rate = 0.0):
        super().__init__()
        self.jitter, self.route = jitter, nn.Linear(dim, 2)
        self.up = nn.Parameter(torch.randn(2, dim, inner) / dim**0.5)
        self.down = nn.Parameter(torch.randn(2, inner, dim) / inner**0.5)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        noisy = x
        if self.training and self.jitter:
            noisy = x * torch.empty_like(x).uniform_(1 - self.jitter, 1 + self.jitter, generator=self.generator)
        p = self.route(noisy).softmax(-1)
        if self.has_listener("loss"):
            self.note("loss", BALANCE * p.square().sum(-1)[:, None, :, None], places)
        hidden = torch.relu(torch.einsum("btd,edi->btei", x, self.up))
        return torch.einsum("bte,btei,eid->btd", p, hidden, self.down)
