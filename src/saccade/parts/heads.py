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


class Head(Protocol):
    """The contract of a head."""

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]: ...

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], smoothing: float
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]: ...


class ChunkedCrossEntropy(torch.autograd.Function):
    """Σ (1 − s)·(−log p(target)) + s·mean over V of (−log p), for p = softmax(hidden · weightᵀ + bias).

    The gradient is folded into hidden and weight while a chunk of logits is hot, with one exponential for both.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, learns: bool
    ) -> tuple[Tensor, Tensor]:
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight) if learns else None
        d_bias = torch.zeros_like(bias) if learns and bias is not None else None
        costs, smooth = [], hidden.new_zeros(())
        logits = hidden.new_empty(min(CHUNK, hidden.shape[0]), weight.shape[0])
        for h, t, dh in zip(hidden.split(CHUNK), target.split(CHUNK), d_hidden.split(CHUNK), strict=True):
            p = torch.mm(h, weight.T, out=logits[: h.shape[0]])
            if bias is not None:
                p += bias
            gold, mean = p.gather(1, t[:, None]), p.mean(1, keepdim=True)
            top = p.amax(1, keepdim=True)
            total = p.sub_(top).exp_().sum(1, keepdim=True)
            log_total = total.log() + top
            costs.append((log_total - gold)[:, 0])
            smooth += (log_total - mean).sum()
            if not learns:
                continue
            p.div_(total).sub_(smoothing / weight.shape[0])
            p.scatter_add_(1, t[:, None], p.new_full((t.shape[0], 1), smoothing - 1))
            torch.mm(p, weight, out=dh)
            if d_weight is not None:
                d_weight.addmm_(p.T, h)
            if d_bias is not None:
                d_bias += p.sum(0)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        each = torch.cat(costs) if costs else hidden.new_zeros(0)
        ctx.mark_non_differentiable(each)
        return (1 - smoothing) * each.sum() + smoothing * smooth, each

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[reportIncompatibleMethodOverride]
        d_hidden, d_weight, d_bias = (None if d is None else d * grads[0] for d in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None, None


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

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        return self.out(hidden).log_softmax(-1)

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], smoothing: float
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]:
        return cross_entropy(hidden, self.out.weight, self.out.bias, target, smoothing)


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

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        folded, rows = self.turned(hidden)
        return F.linear(folded, rows, self.bias).log_softmax(-1)

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], smoothing: float
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]:
        folded, rows = self.turned(hidden)
        return cross_entropy(folded, rows, self.bias, target, smoothing)


HEADS: dict[str, Callable[..., nn.Module]] = {"tied": Tied, "linear": Linear}

HeadSlot = Annotated[Callable[..., nn.Module], Slot(HEADS)]
