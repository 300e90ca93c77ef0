"""Scores: the similarity of a query and a key, before normalization.

`query(q)` and `key(k)` prepare queries and keys once; `join` computes the scores [B H T S] of all pairs. Where
`is_dot_product` is true, `join` is the plain dot product of the prepared vectors, so the fused attention kernel can
compute it. Every score works for one head or several, each with its own weights. `heads` and the width K of a head come
from the attention.
"""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Count, Natural, Slot
from saccade.parts.inits import per_head
from saccade.shapes import Float, Heads, Prepared, Scores


class AttentionScore(Protocol):
    """The contract of a score. `prepared` is the width P of prepared queries and keys."""

    @property
    def is_dot_product(self) -> bool: ...
    @property
    def prepared(self) -> int: ...
    def query(self, q: Heads) -> Prepared: ...
    def key(self, k: Heads) -> Prepared: ...
    def join(self, q: Prepared, k: Float[Tensor, "B #H S P"]) -> Scores: ...


def dot_scores(q: Prepared, k: Float[Tensor, "B H S P"]) -> Scores:
    """The dot products of all pairs of prepared queries and keys [B H T S]."""
    return q @ k.transpose(-1, -2)


def by_head(x: Float[Tensor, "B H T K"], weight: Float[Tensor, "H K P"]) -> Prepared:
    """Multiply each head by its own matrix."""
    # einsum: a broadcast x @ weight would copy the matrices for every row of the batch
    return x @ weight[0] if weight.shape[0] == 1 else torch.einsum("bhtk,hkp->bhtp", x, weight)


class Dot(nn.Module):
    """score(q, k) = q · k (Luong, Pham & Manning 2015, §3.1). Its variance grows with K; `scaled_dot`
    does not have this problem."""

    is_dot_product = True
    fused_options: ClassVar[set[str]] = set()

    def __init__(self, width: int = 0):
        super().__init__()
        self.prepared = width

    def query(self, q: Heads) -> Heads:
        return q

    def key(self, k: Heads) -> Heads:
        return k

    def join(self, q: Heads, k: Float[Tensor, "B H S K"]) -> Scores:
        return dot_scores(q, k)


class ScaledDot(nn.Module):
    """score(q, k) = q · k / √K (Vaswani et al. 2017, §3.2.1). For unit-variance queries and keys the variance is 1 at
    any width K."""

    is_dot_product = True
    fused_options: ClassVar[set[str]] = set()

    def __init__(self, width: int = 0):
        super().__init__()
        self.prepared = width

    def query(self, q: Heads) -> Heads:
        return q / math.sqrt(q.shape[-1])

    def key(self, k: Heads) -> Heads:
        return k

    def join(self, q: Heads, k: Float[Tensor, "B H S K"]) -> Scores:
        return dot_scores(q, k)


class Multiplicative(nn.Module):
    """score(q, k) = qᵀ W k (Luong, Pham & Manning 2015, §3.1, "general"), one matrix W per head."""

    is_dot_product = True

    def __init__(self, heads: int, width: int):
        super().__init__()
        self.prepared = width
        self.out = per_head(heads, width, width)

    def query(self, q: Heads) -> Heads:
        return q

    def key(self, k: Heads) -> Heads:
        return by_head(k, self.out)

    def join(self, q: Heads, k: Float[Tensor, "B H S K"]) -> Scores:
        return dot_scores(q, k)


class ReducedRank(nn.Module):
    """score(q, k) = (U q) · (V k) with U and V of `rank` rows, that is qᵀ W k with a low-rank W = UᵀV: 2·rank·K weights
    per head instead of K² (Stanford CS224n 2021, lecture 7, "reduced-rank multiplicative attention")."""

    is_dot_product = True

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
        return dot_scores(q, k)


class Additive(nn.Module):
    """score(q, k) = vᵀ tanh(W q + U k) with `inner` hidden units, 0 meaning K (Bahdanau, Cho & Bengio 2015, §A.1.2). It
    computes a tensor [B H T S inner], so whole long targets need much memory."""

    is_dot_product = False

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
        hidden = torch.tanh(q[:, :, :, None] + k[:, :, None])  # B H T S P
        if hidden.shape[1] == 1:
            return hidden @ self.out[0, :, 0]
        return torch.einsum("bhtsp,hp->bhts", hidden, self.out[..., 0])


SCORES: dict[str, Callable[..., AttentionScore]] = {
    "scaled_dot": ScaledDot,
    "dot": Dot,
    "multiplicative": Multiplicative,
    "reduced_rank": ReducedRank,
    "additive": Additive,
}

ScoreSlot = Annotated[Callable[..., AttentionScore], Slot(SCORES)]
