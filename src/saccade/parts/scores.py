"""Scores: how much a query likes a key.

`query(q)` and `key(k)` prepare each side once; `join` makes scores [B H T S]. Where `dot` is true the join is the
plain dot product of what was prepared, so the fused kernel may do it.
"""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

from torch import Tensor, nn

from saccade.config import Slot
from saccade.shapes import Float, Heads, Scores


class Score(Protocol):
    """The contract of a score."""

    dot: bool

    def query(self, q: Heads) -> Heads: ...
    def key(self, k: Heads) -> Heads: ...
    def join(self, q: Heads, k: Float[Tensor, "B H S K"]) -> Scores: ...


class Dot(nn.Module):
    """score(q, k) = q · k (Luong, Pham & Manning 2015). Its variance grows with the width: see ScaledDot."""

    dot = True

    def query(self, q: Heads) -> Heads:
        return q

    def key(self, k: Heads) -> Heads:
        return k

    def join(self, q: Heads, k: Float[Tensor, "B H S K"]) -> Scores:
        return q @ k.transpose(-1, -2)


class ScaledDot(nn.Module):
    """score(q, k) = q · k / √K (Vaswani et al. 2017, §3.2.1): variance one at any width K."""

    dot = True

    def query(self, q: Heads) -> Heads:
        return q / math.sqrt(q.shape[-1])

    def key(self, k: Heads) -> Heads:
        return k

    def join(self, q: Heads, k: Float[Tensor, "B H S K"]) -> Scores:
        return q @ k.transpose(-1, -2)


SCORES: dict[str, Callable[..., nn.Module]] = {"scaled_dot": ScaledDot, "dot": Dot}

ScoreSlot = Annotated[Callable[..., nn.Module], Slot(SCORES)]
