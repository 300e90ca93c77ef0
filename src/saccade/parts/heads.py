"""Heads: from hidden states to a distribution over the vocabulary.

`log_probs(hidden)` for search; `loss(hidden[n D], target[n], smoothing) → (sum to differentiate, each row's cost)`.
The loss is a sum, which only the training loop divides, and never holds all n × V logits.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from saccade.config import Slot
from saccade.errors import BuildError
from saccade.parts import fast_linear
from saccade.parts.fast_linear import matmul, padded
from saccade.parts.inits import linear
from saccade.shapes import Float, Int

LOGIT_CHUNK_ROWS = 256  # rows of logits held at a time: 8 MB for 8,000 words, which stays near the cores
MIN_PROBABILITY = 1e-30

Factors = tuple[Tensor, Tensor, Tensor | None]  # logits: the first, times the second turned round, plus the third


class Head(Protocol):
    """The contract of a head. With `agreement`, neighbouring rows are two answers to one question: added is that much
    of the distance between them, (KL(p‖q) + KL(q‖p)) / 2 (R-Drop: Liang et al. 2021)."""

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]: ...

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], smoothing: float, r_drop: float = 0.0
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]: ...


class ChunkedCrossEntropy(torch.autograd.Function):
    """Σ (1 − s)·(−log p(target)) + s·mean over V of (−log p), for p = softmax(hidden · weightᵀ + bias), and what rows
    that should agree are apart.

    The gradient is folded into hidden and weight while a chunk of logits is hot. Each pass over the logits costs as
    much as a third of a product, so there is one, the softmax: what smoothing needs of them, their mean and the same
    gradient for every word, is linear, and comes from the mean of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        r_drop: float,
        learns: bool,
    ) -> tuple[Tensor, Tensor]:
        d_hidden = torch.empty_like(hidden)
        d_turned = hidden.new_zeros(weight.shape[::-1]) if learns else None  # of the weight turned round
        d_bias = torch.zeros_like(bias) if learns and bias is not None else None
        mean_weight, mean_bias = weight.mean(0), 0.0 if bias is None else bias.mean()
        found: list[_Costs] = []
        for h, t, dh in zip(
            hidden.split(LOGIT_CHUNK_ROWS),
            target.split(LOGIT_CHUNK_ROWS),
            d_hidden.split(LOGIT_CHUNK_ROWS),
            strict=True,
        ):
            h, n = padded(h), len(t)
            costs, p = _costs(h, weight, bias, t, r_drop)
            found.append(costs)
            if d_turned is None:
                continue
            p.scatter_add_(1, t[:, None], p.new_full((n, 1), smoothing - 1))
            dh.copy_(matmul(p, weight.t())[:n])
            d_turned += matmul(h.t(), p.t())  # where h is padding it is zero
            if d_bias is not None:
                d_bias += p[:n].sum(0)
        costs = _Costs(*map(torch.cat, zip(*found, strict=True))) if found else _Costs(*hidden.new_zeros(3, 0))
        d_weight = d_turned.t().contiguous() if d_turned is not None else None
        if learns and smoothing:
            share = smoothing / weight.shape[0]
            d_hidden -= smoothing * mean_weight
            d_weight = d_weight.sub_(share * hidden.sum(0)) if d_weight is not None else None
            d_bias = d_bias.sub_(share * hidden.shape[0]) if d_bias is not None else None
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(costs.each)
        smooth = (costs.log_total - (hidden @ mean_weight + mean_bias)).sum()
        total = (1 - smoothing) * costs.each.sum() + smoothing * smooth + r_drop * costs.apart.sum()
        return total, costs.each

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[reportIncompatibleMethodOverride]
        d_hidden, d_weight, d_bias = (None if d is None else d * grads[0] for d in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None, None, None


class _Costs(NamedTuple):
    """Of each row: −log p of its target, the logarithm of the sum its softmax divides by; and of each two rows that
    should agree, how far they are apart."""

    each: Float[Tensor, "n"]
    log_total: Float[Tensor, "n"]
    apart: Float[Tensor, "m"]


def _costs(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, r_drop: float) -> tuple[_Costs, Tensor]:
    """And the gradient of the costs for the logits, but for what targets add to it: without agreement that is p."""
    logits, n = matmul(hidden, weight, bias), len(target)
    gold = logits[:n].gather(1, target[:, None])[:, 0]
    between = logits[:n:2] - logits[1:n:2] if r_drop else None
    p = torch.softmax(logits, 1, out=logits)
    chance = p[:n].gather(1, target[:, None])[:, 0]
    each = -chance.log()
    if bool((chance < MIN_PROBABILITY).any()):  # too near to zero to take its logarithm
        rows = (chance < MIN_PROBABILITY).nonzero()[:, 0]
        again = hidden[rows] @ weight.T
        each[rows] = (again if bias is None else again + bias).logsumexp(1) - gold[rows]
    log_total = gold + each
    if between is None:
        return _Costs(each, log_total, each.new_zeros(0)), p
    between -= (log_total[::2] - log_total[1::2])[:, None]
    return _Costs(each, log_total, _symmetric_kl(p[:n:2], p[1:n:2], between, r_drop)), p


def _symmetric_kl(p: Tensor, q: Tensor, between: Tensor, much: float) -> Tensor:
    """(KL(p‖q) + KL(q‖p)) / 2 of each row, where `between` is log p − log q. Its gradient for the logits, so `much`, is
    added to p and q in place: that of p is (p (log p − log q − KL(p‖q)) + p − q) / 2."""
    here, there = p * between, q * between
    from_p, from_q = here.sum(1, keepdim=True), -there.sum(1, keepdim=True)
    old_p, half = p.clone(), much / 2
    p.mul_(1 + half * (1 - from_p)).add_(here, alpha=half).sub_(q, alpha=half)
    q.mul_(1 + half * (1 - from_q)).sub_(there, alpha=half).sub_(old_p, alpha=half)
    return (from_p + from_q)[:, 0] / 2


def cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, r_drop: float
) -> tuple[Tensor, Tensor]:
    learns = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    total, each = ChunkedCrossEntropy.apply(hidden, weight, bias, target, smoothing, r_drop, learns)  # type: ignore[misc]
    return total, each


class LinearHead(nn.Module):
    """log p = log softmax(W h + b), with a table of its own."""

    def __init__(self, vocabulary: int, dim: int, *, bias: bool = True):
        super().__init__()
        self.out = linear(dim, vocabulary, bias)

    def factors(self, hidden: Float[Tensor, "*n D"]) -> Factors:
        return hidden, self.out.weight, self.out.bias

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        return fast_linear.linear(*self.factors(hidden)).log_softmax(-1)

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], smoothing: float, r_drop: float = 0.0
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]:
        return cross_entropy(*self.factors(hidden), target, smoothing, r_drop)


class TiedHead(nn.Module):
    """log p = log softmax(E h): the decoder's embedding turned round (Press & Wolf 2017). It owns no weights, unless a
    `bias` is added to E h."""

    def __init__(
        self,
        vocabulary: int = 0,
        tied_weight: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
        *,
        bias: bool = False,
    ):
        super().__init__()
        if tied_weight is None:
            raise BuildError('"tied" shares the table of a decoder, and this task has none; use "linear"')
        self.tied_weight = tied_weight
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None

    def factors(self, hidden: Float[Tensor, "*n D"]) -> Factors:
        return *self.tied_weight(hidden), self.bias

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        return fast_linear.linear(*self.factors(hidden)).log_softmax(-1)

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], smoothing: float, r_drop: float = 0.0
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]:
        return cross_entropy(*self.factors(hidden), target, smoothing, r_drop)


HEADS: dict[str, Callable[..., nn.Module]] = {"tied": TiedHead, "linear": LinearHead}

HeadSlot = Annotated[Callable[..., nn.Module], Slot(HEADS)]
