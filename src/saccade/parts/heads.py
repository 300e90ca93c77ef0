"""Heads: from hidden states to a distribution over the vocabulary.

`log_probs(hidden)` for search; `loss(hidden[n D], target[n], smoothing) → (sum to differentiate, each token's cost)`.
The loss is a sum, which only the training loop divides, and never holds all n × V logits.
"""

from collections.abc import Callable
from typing import Annotated, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from saccade.config import Slot
from saccade.errors import Refusal
from saccade.parts.inits import linear
from saccade.shapes import Float, Int

CHUNK = 512  # rows of logits held at a time: 16 MB for 8,000 words, which stays near the cores
UNLIKELY = 1e-30

Factors = tuple[Tensor, Tensor, Tensor | None]  # logits: the first, times the second turned round, plus the third


class Head(Protocol):
    """The contract of a head."""

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]: ...

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], smoothing: float
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]: ...


class ChunkedCrossEntropy(torch.autograd.Function):
    """Σ (1 − s)·(−log p(target)) + s·mean over V of (−log p), for p = softmax(hidden · weightᵀ + bias).

    The gradient is folded into hidden and weight while a chunk of logits is hot. Each pass over the logits costs as
    much as a third of a product, so there is one, the softmax: what smoothing needs of them, their mean and the same
    gradient for every word, is linear, and comes from the mean of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, learns: bool
    ) -> tuple[Tensor, Tensor]:
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight) if learns else None
        d_bias = torch.zeros_like(bias) if learns and bias is not None else None
        mean_weight, mean_bias = weight.mean(0), 0.0 if bias is None else bias.mean()
        costs, golds = [], []
        logits = hidden.new_empty(min(CHUNK, hidden.shape[0]), weight.shape[0])
        for h, t, dh in zip(hidden.split(CHUNK), target.split(CHUNK), d_hidden.split(CHUNK), strict=True):
            gold, cost, p = _costs(h, weight, bias, t, logits[: h.shape[0]])
            golds.append(gold)
            costs.append(cost)
            if d_weight is None:
                continue
            p.scatter_add_(1, t[:, None], p.new_full((t.shape[0], 1), smoothing - 1))
            torch.mm(p, weight, out=dh)
            d_weight.addmm_(p.T, h)
            if d_bias is not None:
                d_bias += p.sum(0)
        each = torch.cat(costs) if costs else hidden.new_zeros(0)
        log_totals = torch.cat(golds) + each if golds else each
        if learns and smoothing:
            share = smoothing / weight.shape[0]
            d_hidden -= smoothing * mean_weight
            d_weight = d_weight.sub_(share * hidden.sum(0)) if d_weight is not None else None
            d_bias = d_bias.sub_(share * hidden.shape[0]) if d_bias is not None else None
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(each)
        smooth = (log_totals - (hidden @ mean_weight + mean_bias)).sum()
        return (1 - smoothing) * each.sum() + smoothing * smooth, each

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[reportIncompatibleMethodOverride]
        d_hidden, d_weight, d_bias = (None if d is None else d * grads[0] for d in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None, None


def _costs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The logit of each target, its cost −log p, and p over all words, which takes the memory of `logits`."""
    torch.mm(hidden, weight.T, out=logits)
    if bias is not None:
        logits += bias
    gold = logits.gather(1, target[:, None])[:, 0]
    p = torch.softmax(logits, 1, out=logits)
    chance = p.gather(1, target[:, None])[:, 0]
    cost = -chance.log()
    if bool((chance < UNLIKELY).any()):  # too near to zero to take its logarithm
        rows = (chance < UNLIKELY).nonzero()[:, 0]
        again = hidden[rows] @ weight.T
        cost[rows] = (again if bias is None else again + bias).logsumexp(1) - gold[rows]
    return gold, cost, p


def cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    learns = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    total, each = ChunkedCrossEntropy.apply(hidden, weight, bias, target, smoothing, learns)  # type: ignore[misc]
    return total, each


class Linear(nn.Module):
    """log p = log softmax(W h + b), with a table of its own."""

    def __init__(self, vocabulary: int, dim: int, *, bias: bool = True):
        super().__init__()
        self.out = linear(dim, vocabulary, bias)

    def factors(self, hidden: Float[Tensor, "*n D"]) -> Factors:
        return hidden, self.out.weight, self.out.bias

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        return F.linear(*self.factors(hidden)).log_softmax(-1)

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], smoothing: float
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]:
        return cross_entropy(*self.factors(hidden), target, smoothing)


class Tied(nn.Module):
    """log p = log softmax(E h): the decoder's embedding turned round (Press & Wolf 2017). It owns no weights, unless a
    `bias` is added to E h."""

    def __init__(
        self,
        vocabulary: int = 0,
        turned: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
        *,
        bias: bool = False,
    ):
        super().__init__()
        if turned is None:
            raise Refusal('"tied" shares the table of a decoder, and this task has none; use "linear"')
        self.turned = turned
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None

    def factors(self, hidden: Float[Tensor, "*n D"]) -> Factors:
        return *self.turned(hidden), self.bias

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        return F.linear(*self.factors(hidden)).log_softmax(-1)

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], smoothing: float
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]:
        return cross_entropy(*self.factors(hidden), target, smoothing)


HEADS: dict[str, Callable[..., nn.Module]] = {"tied": Tied, "linear": Linear}

HeadSlot = Annotated[Callable[..., nn.Module], Slot(HEADS)]
