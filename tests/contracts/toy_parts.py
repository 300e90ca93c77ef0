"""Parts that exist only in tests, because the parts that need the same contracts are not built yet."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import Count, Rate
from saccade.models.stacks import Layer, PlainStack
from saccade.notes import RecordingModule
from saccade.parts import MultiHead, RandomModule
from saccade.parts.heads import Head
from saccade.parts.token_costs import CROSS_ENTROPY, TokenCost
from saccade.places import Memory, Places

BALANCE = 0.3


class ToyLayerMean(MultiHead):
    """Cross-attention to the mean of the encoder's states, its embedded input and the outputs of all its layers."""

    reads_layers = True

    def start(self, memory: Memory | None, rows: int) -> Any:
        assert memory is not None
        return super().start(replace(memory, states=torch.stack([memory.states, *memory.layers]).mean(0)), rows)


class ToyHalvingStack(PlainStack):
    """Each layer once; before the last one, every second position is left out."""

    def forward(self, layers: Sequence[Layer], x: Tensor, places: Places, state: Any) -> Any:
        outputs, places, first = super().forward(layers[:-1], x, places, state[:-1])
        half = outputs[-1][:, ::2]
        of_half = Places.of(half, places.keep[:, ::2])
        last, of_half, end = super().forward(layers[-1:], half, of_half, state[-1:])
        return (*outputs, *last), of_half, (*first, *end)


class ToyNotingHead(RecordingModule):
    """Another head, which notes a loss of 1 for each row of hidden states."""

    def __init__(self, head: Head):
        super().__init__()
        self.head, self.cost_terms = head, head.cost_terms
        self.log_probs = head.log_probs

    def loss(self, hidden: Tensor, target: Tensor, cost: TokenCost = CROSS_ENTROPY) -> tuple[Tensor, Tensor]:
        self.note("loss", hidden.new_ones(1, 1, len(hidden), 1), Places.of(hidden[None], None))
        return self.head.loss(hidden, target, cost)


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
