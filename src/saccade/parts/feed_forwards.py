"""Feed-forwards: the same map at every position. (x, keep) → x, where `keep` is the padding mask."""

from collections.abc import Callable
from typing import Annotated, Protocol

from torch import nn

from saccade.config import Count, Slot
from saccade.parts.activations import ACTIVATIONS, Activation
from saccade.parts.dropout import Dropout
from saccade.parts.inits import linear_layer
from saccade.shapes import Keep, States


class FeedForward(Protocol):
    """The contract of a feed-forward. Positions do not mix; `keep` lets a part ignore padding."""

    def __call__(self, x: States, keep: Keep) -> States: ...


class PlainFeedForward(nn.Module):
    """y = W₂ dropout(f(W₁ x + b₁)) + b₂ with `inner` hidden units and the activation f (Vaswani et al. 2017, §3.3)."""

    def __init__(self, dim: int, dropout: float = 0.0, *, inner: Count = 2048, activation: Activation = "relu"):
        super().__init__()
        self.up, self.down = linear_layer(dim, inner), linear_layer(inner, dim)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: States, keep: Keep) -> States:
        return self.down(self.dropout(self.activation(self.up(x))))


FEED_FORWARDS: dict[str, Callable[..., FeedForward]] = {"plain": PlainFeedForward}

FeedForwardSlot = Annotated[Callable[..., FeedForward], Slot(FEED_FORWARDS)]
