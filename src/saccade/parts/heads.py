"""Heads: hidden states → log-probabilities over the vocabulary, and the cross-entropy loss."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from saccade.config import Slot
from saccade.devices import full_precision, is_mixed
from saccade.errors import BuildError
from saccade.parts import fast_linear
from saccade.parts.fast_linear import linear_no_grad, pad_rows
from saccade.parts.inits import linear_layer
from saccade.parts.token_costs import CROSS_ENTROPY, TokenCost
from saccade.shapes import Float, Int

LOGIT_CHUNK_ROWS = 256  # rows of logits computed at a time: 8 MB if V = 8,000, which stays in the CPU's cache
GPU_LOGIT_CHUNK_ROWS = 2048  # enough work for each call to a GPU
MIN_PROBABILITY = 1e-30  # below this, log p is computed from the logits and not from p

Factors = tuple[Tensor, Tensor, Tensor | None]  # (hidden, weight, bias): logits = hidden @ weight.T + bias


class Head(Protocol):
    """The contract of a head.

    `log_probs(hidden)` is for search. `loss(hidden, target, cost)` returns the loss to differentiate, summed over the n
    rows (only the training loop divides it), and the plain cross-entropy of each row. It never holds all n × V logits.
    `cost_terms` are the terms of a `TokenCost` that it computes; a recipe with another one is refused.
    """

    cost_terms: frozenset[str]

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]: ...

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], cost: TokenCost = CROSS_ENTROPY
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]: ...


CHUNKED_TERMS = frozenset({"smoothing", "r_drop"})  # what ChunkedCrossEntropy computes


class ChunkedCrossEntropy(torch.autograd.Function):
    """The sum of the `TokenCost` of all rows for p = softmax(hidden @ weight.T + bias).

    The forward pass computes the gradients of hidden, weight and bias chunk by chunk, while a chunk of logits is in the
    cache. Each pass over the logits costs as much as a third of a matrix product, so there is only one, the softmax.
    Label smoothing needs the mean of the logits and adds the same gradient to every token; both are linear and are
    computed from the mean of the weights. In mixed precision the products are in bfloat16 and all else in float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        cost: TokenCost,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        smoothing, r_drop = cost.smoothing, cost.r_drop
        d_hidden = torch.empty_like(hidden)
        trains_weight = needs_gradient and weight.requires_grad
        d_weight_t = hidden.new_zeros(weight.shape[::-1]) if trains_weight else None  # of weight.T
        d_bias = torch.zeros_like(bias) if needs_gradient and bias is not None else None
        product_weight = weight.to(torch.get_autocast_dtype(weight.device.type)) if is_mixed(weight) else weight
        rows = LOGIT_CHUNK_ROWS if hidden.is_cpu else GPU_LOGIT_CHUNK_ROWS
        chunks: list[_RowCosts] = []
        for h, t, dh in zip(hidden.split(rows), target.split(rows), d_hidden.split(rows), strict=True):
            h, n = pad_rows(h), len(t)
            chunk, d_logits = _chunk_costs(h, product_weight, bias, t, r_drop)
            chunks.append(chunk)
            if not needs_gradient:
                continue
            d_logits.scatter_add_(1, t[:, None], d_logits.new_full((n, 1), smoothing - 1))
            dh.copy_(linear_no_grad(d_logits, product_weight.t())[:n])
            if d_weight_t is not None:
                d_weight_t += linear_no_grad(h.t(), d_logits.t())  # padding rows of h are zero and add nothing
            if d_bias is not None:
                d_bias += d_logits[:n].sum(0)
        costs = _RowCosts(*map(torch.cat, zip(*chunks, strict=True))) if chunks else _RowCosts(*hidden.new_zeros(3, 0))
        d_weight = d_weight_t.t().contiguous() if d_weight_t is not None else None
        total = (1 - smoothing) * costs.cross_entropy.sum()
        if smoothing:
            gradients = (d_hidden, d_weight, d_bias) if needs_gradient else (None, None, None)
            total += smoothing * _uniform_cost(hidden, weight, bias, costs.log_partition, smoothing, gradients)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(costs.cross_entropy)
        return total + r_drop * costs.divergence.sum(), costs.cross_entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _scaled_gradients(ctx, *grads)


@once_differentiable
def _scaled_gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients that the forward pass computed, times the incoming one; one entry per argument of `forward`."""
    d_hidden, d_weight, d_bias = (None if d is None else d * grads[0] for d in ctx.saved_tensors)
    return d_hidden, d_weight, d_bias, None, None, None


class _RowCosts(NamedTuple):
    """The costs of rows. `log_partition` is logsumexp(logits); `divergence` has one entry per pair of rows and is empty
    without R-Drop."""

    cross_entropy: Float[Tensor, "n"]
    log_partition: Float[Tensor, "n"]
    divergence: Float[Tensor, "m"]


def _chunk_costs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, r_drop: float
) -> tuple[_RowCosts, Tensor]:
    """The costs of a chunk, and the gradient of its logits without the part that the targets add. Without R-Drop that
    gradient is softmax(logits)."""
    logits, n = linear_no_grad(hidden, weight, bias).to(hidden.dtype), len(target)
    target_logit = logits[:n].gather(1, target[:, None])[:, 0]
    log_ratio = logits[:n:2] - logits[1:n:2] if r_drop else None
    # the test for small probabilities would make the CPU wait for a GPU, where one more pass over the logits costs less
    cross_entropy = None if logits.is_cpu else logits[:n].logsumexp(1) - target_logit
    p = torch.softmax(logits, 1, out=logits)
    if cross_entropy is None:
        cross_entropy = _cross_entropy_of(p[:n], hidden, weight, bias, target, target_logit)
    log_partition = target_logit + cross_entropy
    if log_ratio is None:
        return _RowCosts(cross_entropy, log_partition, cross_entropy.new_zeros(0)), p
    log_ratio -= (log_partition[::2] - log_partition[1::2])[:, None]
    return _RowCosts(cross_entropy, log_partition, _symmetric_kl(p[:n:2], p[1:n:2], log_ratio, r_drop)), p


def _uniform_cost(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    log_partition: Tensor,
    smoothing: float,
    gradients: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> Tensor:
    """The mean over the vocabulary of −log p, summed over the rows, as label smoothing needs it. Adds what the mean of
    the logits contributes to the gradients of hidden, weight and bias in place; None is one that is not needed."""
    d_hidden, d_weight, d_bias = gradients
    mean_weight, per_token = weight.mean(0), smoothing / weight.shape[0]
    if d_hidden is not None:
        d_hidden.sub_(smoothing * mean_weight)
    if d_weight is not None:
        d_weight.sub_(per_token * hidden.sum(0))
    if d_bias is not None:
        d_bias.sub_(per_token * hidden.shape[0])
    with full_precision(hidden):
        return (log_partition - (hidden @ mean_weight + (0.0 if bias is None else bias.mean()))).sum()


def _cross_entropy_of(
    p: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, target_logit: Tensor
) -> Tensor:
    """−log p(target) of each row; from the logits where p(target) is too small."""
    target_prob = p.gather(1, target[:, None])[:, 0]
    cross_entropy = -target_prob.log()
    if bool((target_prob < MIN_PROBABILITY).any()):
        rows = (target_prob < MIN_PROBABILITY).nonzero()[:, 0]
        row_logits = (hidden[rows] @ weight.T).to(p.dtype)  # the logits of all rows were overwritten by the softmax
        row_logits = row_logits if bias is None else row_logits + bias
        cross_entropy[rows] = row_logits.logsumexp(1) - target_logit[rows]
    return cross_entropy


def _symmetric_kl(p: Tensor, q: Tensor, log_ratio: Tensor, scale: float) -> Tensor:
    """(KL(p‖q) + KL(q‖p)) / 2 of each row, where `log_ratio` is log p − log q. Adds `scale` times its gradient with
    respect to the logits to p and q in place; that of p's logits is (p (log p − log q − KL(p‖q)) + p − q) / 2."""
    p_terms, q_terms = p * log_ratio, q * log_ratio
    kl_pq, kl_qp = p_terms.sum(1, keepdim=True), -q_terms.sum(1, keepdim=True)
    old_p, half = p.clone(), scale / 2
    p.mul_(1 + half * (1 - kl_pq)).add_(p_terms, alpha=half).sub_(q, alpha=half)
    q.mul_(1 + half * (1 - kl_qp)).sub_(q_terms, alpha=half).sub_(old_p, alpha=half)
    return (kl_pq + kl_qp)[:, 0] / 2


def cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, cost: TokenCost
) -> tuple[Tensor, Tensor]:
    """The loss of `Head.loss` for logits = hidden @ weight.T + bias; gradients are computed only if needed."""
    hidden = hidden.to(weight.dtype)
    trained = hidden.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    needs_gradient = torch.is_grad_enabled() and trained
    total, row_costs = ChunkedCrossEntropy.apply(hidden, weight, bias, target, cost, needs_gradient)
    return total, row_costs


class LinearHead(nn.Module):
    """log p = log softmax(W h + b), with its own weight matrix W."""

    cost_terms = CHUNKED_TERMS

    def __init__(self, vocabulary: int, dim: int, *, bias: bool = True):
        super().__init__()
        self.out = linear_layer(dim, vocabulary, bias)

    def factors(self, hidden: Float[Tensor, "*n D"]) -> Factors:
        return hidden, self.out.weight, self.out.bias

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        return fast_linear.linear(*self.factors(hidden)).log_softmax(-1)

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], cost: TokenCost = CROSS_ENTROPY
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]:
        return cross_entropy(*self.factors(hidden), target, cost)


class TiedHead(nn.Module):
    """log p = log softmax(E h + b), where E is the embedding table of the side that the head reads (weight tying: Press
    & Wolf 2017): in most models the decoder. Its only own weight is the vector b, and only with `bias = true`."""

    cost_terms = CHUNKED_TERMS

    def __init__(
        self,
        vocabulary: int = 0,
        tied_weight: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
        *,
        bias: bool = False,
    ):
        super().__init__()
        if tied_weight is None:
            raise BuildError(
                '"tied" needs an embedding of each token or label that it predicts, but the side of the model that it '
                'reads has none; use "linear"'
            )
        self.tied_weight = tied_weight
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None

    def factors(self, hidden: Float[Tensor, "*n D"]) -> Factors:
        return *self.tied_weight(hidden), self.bias

    def log_probs(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        return fast_linear.linear(*self.factors(hidden)).log_softmax(-1)

    def loss(
        self, hidden: Float[Tensor, "n D"], target: Int[Tensor, "n"], cost: TokenCost = CROSS_ENTROPY
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n"]]:
        return cross_entropy(*self.factors(hidden), target, cost)


HEADS: dict[str, Callable[..., Head]] = {"tied": TiedHead, "linear": LinearHead}

HeadSlot = Annotated[Callable[..., Head], Slot(HEADS)]
