"""Feed-forwards: the same map at every position. (x, places) → x."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Count, Slot
from saccade.parts import fast_linear
from saccade.parts.activations import ACTIVATIONS, Activation
from saccade.parts.dropout import Dropout
from saccade.parts.fused_forms import are_linear
from saccade.parts.inits import linear_layer
from saccade.places import Places
from saccade.shapes import States


class FeedForward(Protocol):
    """The contract of a feed-forward. Positions do not mix. With the places, a router of experts ignores padding, and
    notes an auxiliary `loss` with the positions that it belongs to."""

    def __call__(self, x: States, places: Places) -> States: ...


class FusedFeedForward:
    """The fused form of a feed-forward: y = W₂ activate(W₁ x + b₁) + b₂."""

    def __init__(
        self,
        up: Tensor,
        up_bias: Tensor | None,
        activate: Callable[[Tensor], Tensor],
        down: Tensor,
        down_bias: Tensor | None,
    ):
        self.up, self.up_bias, self.activate, self.down, self.down_bias = up, up_bias, activate, down, down_bias

    def __call__(self, x: Tensor) -> Tensor:
        hidden = self.activate(fast_linear.linear(x, self.up, self.up_bias))
        return fast_linear.linear(hidden, self.down, self.down_bias)


class PlainFeedForward(nn.Module):
    """y = W₂ dropout(f(W₁ x + b₁)) + b₂ with `inner` hidden units and the activation f (Vaswani et al. 2017, §3.3)."""

    fused_options: ClassVar[set[str]] = {"inner", "activation"}

    def __init__(self, dim: int, dropout: float = 0.0, *, inner: Count = 2048, activation: Activation = "relu"):
        super().__init__()
        self.up, self.down = linear_layer(dim, inner), linear_layer(inner, dim)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: States, places: Places) -> States:
        return self.down(self.dropout(self.activation(self.up(x))))

    def fused(self) -> FusedFeedForward | None:
        if not are_linear(self.up, self.down):
            return None
        return FusedFeedForward(self.up.weight, self.up.bias, self.activation, self.down.weight, self.down.bias)


class GatedFeedForward(nn.Module):
    """y = W₂ dropout(f(W₁ x) ⊙ V x) without biases: a gated linear unit, with f = swish SwiGLU (Shazeer 2020,
    arXiv:2002.05202). At the same number of weights `inner` is two thirds of that of a plain feed-forward."""

    fused_options: ClassVar[set[str]] = {"inner", "activation"}

    def __init__(self, dim: int, dropout: float = 0.0, *, inner: Count = 1365, activation: Activation = "swish"):
        super().__init__()
        self.gate, self.up = linear_layer(dim, inner, bias=False), linear_layer(dim, inner, bias=False)
        self.down = linear_layer(inner, dim, bias=False)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: States, places: Places) -> States:
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))

    def fused(self) -> FusedFeedForward | None:
        if not are_linear(self.gate, self.up, self.down):
            return None
        up = torch.cat([self.gate.weight, self.up.weight])
        return FusedFeedForward(up, None, Gate(self.activation), self.down.weight, None)


class Gate:
    """f(first half) ⊙ second half of the last axis."""

    def __init__(self, activation: Callable[[Tensor], Tensor]):
        self.activation = activation

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, -1)
        return self.activation(gate) * up


FEED_FORWARDS: dict[str, Callable[..., FeedForward]] = {"plain": PlainFeedForward, "gated": GatedFeedForward}

FeedForwardSlot = Annotated[Callable[..., FeedForward], Slot(FEED_FORWARDS)]
