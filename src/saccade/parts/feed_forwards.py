"""Feed-forwards: the same map at every place. (x, keep) → x, where keep tells real places from padding."""

from collections.abc import Callable
from typing import Annotated

from torch import nn

from saccade.config import Count, Slot
from saccade.parts.activations import ACTIVATIONS, Activation
from saccade.parts.dropout import Dropout
from saccade.parts.inits import linear
from saccade.shapes import Keep, States


class PlainFeedForward(nn.Module):
    """y = W₂ f(W₁ x + b₁) + b₂ at each place (Vaswani et al. 2017, §3.3)."""

    def __init__(self, dim: int, dropout: float = 0.0, *, inner: Count = 2048, activation: Activation = "relu"):
        super().__init__()
        self.up, self.down = linear(dim, inner), linear(inner, dim)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: States, keep: Keep) -> States:
        return self.down(self.dropout(self.activation(self.up(x))))


FEED_FORWARDS: dict[str, Callable[..., nn.Module]] = {"plain": PlainFeedForward}

FeedForwardSlot = Annotated[Callable[..., nn.Module], Slot(FEED_FORWARDS)]
