"""Picks: from scores to weights. A soft normalizer lets the fused kernel do both."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from saccade.config import NotNegative, Rate, Slot
from saccade.notes import Part
from saccade.places import Places
from saccade.shapes import AttentionMask, Bool, Float, Scores


class Normalizer(Protocol):
    """The contract of a normalizer. `is_softmax`: the fused kernel may compute it. `queries` are for notes."""

    is_softmax: bool

    def __call__(self, scores: Scores, keep: AttentionMask | None, queries: Places | None = None) -> Scores: ...


class SampledPart(Protocol):
    """A part that chooses by lot while training. `settle` turns what it noted as `wager` [B H T 2] and what followed
    each choice (`cost` [B T], of `count` [B T] tokens) into a loss, a sum over the real places."""

    def policy_loss(
        self, wager: Tensor, cost: Float[Tensor, "B T"], count: Float[Tensor, "B T"], keep: Bool[Tensor, "B T"]
    ) -> Tensor: ...


def masked_scores(scores: Scores, keep: AttentionMask | None) -> Scores:
    """The one place where a mask becomes −∞."""
    return scores if keep is None else scores.masked_fill(~keep, -math.inf)


def _only_seen(weights: Scores, keep: AttentionMask | None) -> Scores:
    return weights if keep is None else weights.masked_fill(~keep, 0.0)  # a softmax of nothing is NaN


class Softmax(nn.Module):
    """weights = softmax(scores). A row that may look at nothing gives zeros."""

    is_softmax = True

    def forward(self, scores: Scores, keep: AttentionMask | None, queries: Places | None = None) -> Scores:
        return _only_seen(torch.softmax(masked_scores(scores, keep), -1), keep)


class Sparsemax(nn.Module):
    """weights = sparsemax(scores), the nearest point of the simplex: it can give exactly zero, so a query may look at
    a few places only (Martins & Astudillo 2016)."""

    is_softmax = False

    def forward(self, scores: Scores, keep: AttentionMask | None, queries: Places | None = None) -> Scores:
        # the best score becomes 0, so that sums stay exact; what is hidden is too low to matter, and no −∞, whose
        # cumulative sum would be NaN
        top = masked_scores(scores.detach(), keep).amax(-1, keepdim=True).nan_to_num(neginf=0.0)
        seen = scores - top if keep is None else torch.where(keep, scores - top, -2.0)
        ordered = seen.sort(-1, descending=True).values
        rank = torch.arange(1, seen.shape[-1] + 1, device=seen.device, dtype=seen.dtype)
        above = ordered.cumsum(-1) - 1
        size = (rank * ordered > above).sum(-1, keepdim=True).clamp(min=1)  # of the support
        threshold = above.gather(-1, size - 1) / size
        return _only_seen(torch.relu(seen - threshold), keep)


class Hard(Part):
    """One place by lot while training, drawn from softmax(scores); the likeliest place in use (Xu et al. 2015, §4.1).

    A choice cannot be differentiated, so it is a wager, settled by what it led to (REINFORCE, Williams 1992): the loss
    (cost − baseline) · log p(choice), with `cost` that of all tokens that the choice could change (−log p of each,
    without smoothing and without what other parts cost). The baseline is a moving mean (`memory`) of the cost a token;
    it shifts no gradient on average and quiets them all. `entropy` pays for staying undecided, so that a choice is not
    made too early.
    """

    is_softmax = False

    def __init__(self, *, reward: NotNegative = 1.0, entropy: NotNegative = 0.01, baseline_decay: Rate = 0.95):
        super().__init__()
        self.reward, self.entropy, self.baseline_decay = reward, entropy, baseline_decay
        self.baseline: Tensor
        self.baseline_ready: Tensor
        self.register_buffer("baseline", torch.zeros(()))
        self.register_buffer("baseline_ready", torch.zeros(()))

    def forward(self, scores: Scores, keep: AttentionMask | None, queries: Places | None = None) -> Scores:
        p = _only_seen(torch.softmax(masked_scores(scores, keep), -1), keep)
        chosen = self.sample(p.detach()) if self.training else p.argmax(-1, keepdim=True)
        if queries is not None and self.has_listener("sampled"):
            tiny = torch.finfo(p.dtype).tiny
            log_p = p.clamp(min=tiny).log()
            wager = [log_p.gather(-1, chosen)[..., 0], -(p * log_p).sum(-1)]
            self.note("sampled", torch.stack(wager, -1), queries)
        weights = torch.zeros_like(p).scatter_(-1, chosen, 1.0)
        return _only_seen(weights, keep)

    def sample(self, p: Scores) -> Tensor:
        """One place [B H T 1] of each row, with the probabilities p. A row of zeros gives any."""
        dice = torch.rand(*p.shape[:-1], 1, device=p.device, dtype=p.dtype)
        reached = p.cumsum(-1) > dice * p.sum(-1, keepdim=True)
        return reached.int().argmax(-1, keepdim=True)

    def policy_loss(
        self, wager: Tensor, cost: Float[Tensor, "B T"], count: Float[Tensor, "B T"], keep: Bool[Tensor, "B T"]
    ) -> Tensor:
        """Σ (cost − baseline · count) · log p − entropy, over real places and heads."""
        log_p, entropy = wager.unbind(-1)
        advantage = ((cost - self.baseline * count) * self.reward).detach()
        loss = (advantage[:, None] * log_p - self.entropy * entropy) * keep[:, None]
        self._remember(cost[keep], count[keep])
        return loss.sum()

    def _remember(self, cost: Tensor, count: Tensor) -> None:
        tokens = count.sum()
        if not tokens:
            return
        with torch.no_grad():  # the first mean counts in full: a baseline of zero would be far off
            share = torch.where(self.baseline_ready > 0, 1 - self.baseline_decay, 1.0)
            self.baseline.lerp_(cost.detach().sum() / tokens, share)
            self.baseline_ready.fill_(1.0)


NORMALIZERS: dict[str, Callable[..., nn.Module]] = {"softmax": Softmax, "hard": Hard, "sparsemax": Sparsemax}

NormalizerSlot = Annotated[Callable[..., nn.Module], Slot(NORMALIZERS)]
