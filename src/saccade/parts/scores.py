"""Scores: how much a query likes a key.

`query(q)` and `key(k)` prepare each side once; `join` makes scores [B H T S]. Where `dot` is true the join is the
plain dot product of what was prepared, so the fused kernel may do it. All work on one head or many, each head with
weights of its own: `heads` and their `width` K are wiring.
"""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Count, Natural, Slot
from saccade.parts.inits import per_head
from saccade.shapes import Float, Heads, Prepared, Scores


class Score(Protocol):
    """The contract of a score. `prepared` is the width of what `key` gives."""

    dot: bool
    prepared: int

    def query(self, q: Heads) -> Prepared: ...
    def key(self, k: Heads) -> Prepared: ...
    def join(self, q: Prepared, k: Float[Tensor, "B #H S P"]) -> Scores: ...


def dot(q: Prepared, k: Float[Tensor, "B H S P"]) -> Scores:
    return q @ k.transpose(-1, -2)


def by_head(x: Float[Tensor, "B H T K"], weight: Float[Tensor, "H K P"]) -> Prepared:
    """Each head times its own matrix: one product a head, never a copy of the matrix for each row."""
    return x @ weight[0] if weight.shape[0] == 1 else torch.einsum("bhtk,hkp->bhtp", x, weight)


class Dot(nn.Module):
    """score(q, k) = q · k (Luong, Pham & Manning 2015, §3.1). Its variance grows with the width: see ScaledDot."""

    dot = True

    def __init__(self, width: int = 0):
        super().__init__()
        self.prepared = width

    def query(self, q: Heads) -> Heads:
        return q

    def key(self, k: Heads) -> Heads:
        return k

    def join(self, q: Heads, k: Float[Tensor, "B H S K"]) -> Scores:
        return dot(q, k)


class ScaledDot(nn.Module):
    """score(q, k) = q · k / √K (Vaswani et al. 2017, §3.2.1): variance one at any width K."""

    dot = True

    def __init__(self, width: int = 0):
        super().__init__()
        self.prepared = width

    def query(self, q: Heads) -> Heads:
        return q / math.sqrt(q.shape[-1])

    def key(self, k: Heads) -> Heads:
        return k

    def join(self, q: Heads, k: Float[Tensor, "B H S K"]) -> Scores:
        return dot(q, k)


class Multiplicative(nn.Module):
    """score(q, k) = qᵀ W k (Luong, Pham & Manning 2015, §3.1, "general"): a matrix of its own for each head."""

    dot = True

    def __init__(self, heads: int, width: int):
        super().__init__()
        self.prepared = width
        self.out = per_head(heads, width, width)

    def query(self, q: Heads) -> Heads:
        return q

    def key(self, k: Heads) -> Heads:
        return by_head(k, self.out)

    def join(self, q: Heads, k: Float[Tensor, "B H S K"]) -> Scores:
        return dot(q, k)


class ReducedRank(nn.Module):
    """score(q, k) = (U q) · (V k), U and V of `rank` rows: a bilinear form W = UᵀV of low rank, so 2·rank·K weights a
    head instead of K² (Stanford CS224n 2021, lecture 7, "reduced-rank multiplicative attention")."""

    dot = True

    def __init__(self, heads: int, width: int, *, rank: Count = 32):
        super().__init__()
        self.prepared = rank
        self.query_weight = per_head(heads, width, rank)
        self.key_weight = per_head(heads, width, rank)

    def query(self, q: Heads) -> Prepared:
        return by_head(q, self.query_weight)

    def key(self, k: Heads) -> Prepared:
        return by_head(k, self.key_weight)

    def join(self, q: Prepared, k: Float[Tensor, "B H S P"]) -> Scores:
        return dot(q, k)


class Additive(nn.Module):
    """score(q, k) = vᵀ tanh(W q + U k) (Bahdanau, Cho & Bengio 2015, §A.1.2): a small network with `inner` units
    (0 = as many as the width). It holds T × S × inner numbers, so it suits a step at a time best."""

    dot = False

    def __init__(self, heads: int, width: int, *, inner: Natural = 0):
        super().__init__()
        self.prepared = inner or width
        self.query_weight = per_head(heads, width, self.prepared)
        self.key_weight = per_head(heads, width, self.prepared)
        self.out = per_head(heads, self.prepared, 1)

    def query(self, q: Heads) -> Prepared:
        return by_head(q, self.query_weight)

    def key(self, k: Heads) -> Prepared:
        return by_head(k, self.key_weight)

    def join(self, q: Prepared, k: Float[Tensor, "B H S P"]) -> Scores:
        both = torch.tanh(q[:, :, :, None] + k[:, :, None])  # B H T S P
        if both.shape[1] == 1:
            return both @ self.out[0, :, 0]
        return torch.einsum("bhtsp,hp->bhts", both, self.out[..., 0])


SCORES: dict[str, Callable[..., nn.Module]] = {
    "scaled_dot": ScaledDot,
    "dot": Dot,
    "multiplicative": Multiplicative,
    "reduced_rank": ReducedRank,
    "additive": Additive,
}

ScoreSlot = Annotated[Callable[..., nn.Module], Slot(SCORES)]
