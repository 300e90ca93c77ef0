"""Normalizers: attention scores [B H T S] → attention weights. With `softmax` the fused attention kernel can compute
scores, weights and output in one call."""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar, Protocol

import torch
from torch import Tensor, nn

from saccade.config import NotNegative, Rate, Slot
from saccade.notes import RecordingModule
from saccade.parts.randomness import RandomModule
from saccade.places import Places
from saccade.shapes import AttentionMask, Bool, Float, Scores


class Normalizer(Protocol):
    """The contract of a normalizer. Masked keys get weight 0, and a query whose keys are all masked gets only zeros.

    `is_softmax`: the weights are softmax(scores), so the fused kernel may compute them. `queries` is used for notes.
    """

    @property
    def is_softmax(self) -> bool: ...
    def __call__(self, scores: Scores, keep: AttentionMask | None, queries: Places | None = None) -> Scores: ...


class SampledPart(Protocol):
    """A part that samples in training and is trained by REINFORCE. It records a note of the kind `sampled`; its
    `policy_loss` turns this note into a loss.

    `sampled` [B H T 2] holds the log-probability and the entropy of each action. `cost` [B T] is the cross-entropy of
    all tokens that the action could influence, and `count` [B T] the number of these tokens. Returns a sum over all
    positions that `keep` marks as real.
    """

    def policy_loss(
        self, sampled: Tensor, cost: Float[Tensor, "B T"], count: Float[Tensor, "B T"], keep: Bool[Tensor, "B T"]
    ) -> Tensor: ...


def masked_scores(scores: Scores, keep: AttentionMask | None) -> Scores:
    """Replace masked scores by −∞."""
    return scores if keep is None else scores.masked_fill(~keep, -math.inf)


def _softmax(scores: Scores, keep: AttentionMask | None) -> Scores:
    """The softmax over the keys that are not masked, at least in float32."""
    return torch.softmax(masked_scores(_at_least_float32(scores), keep), -1)


def _at_least_float32(scores: Scores) -> Scores:
    """The scores in float32 if they are in a format with fewer digits, as in mixed precision."""
    return scores.float() if scores.dtype is torch.bfloat16 else scores


def _zero_masked(weights: Scores, keep: AttentionMask | None) -> Scores:
    return weights if keep is None else weights.masked_fill(~keep, 0.0)  # the softmax of only −∞ is NaN


class Softmax(nn.Module):
    """weights = softmax(scores)."""

    is_softmax = True
    fused_options: ClassVar[set[str]] = set()

    def forward(self, scores: Scores, keep: AttentionMask | None, queries: Places | None = None) -> Scores:
        return _zero_masked(_softmax(scores, keep), keep)


class Sparsemax(nn.Module):
    """weights = sparsemax(scores), the Euclidean projection onto the probability simplex: many weights are exactly zero
    (Martins & Astudillo 2016)."""

    is_softmax = False

    def forward(self, scores: Scores, keep: AttentionMask | None, queries: Places | None = None) -> Scores:
        # The maximum is subtracted, so that the sums stay exact for large scores. Masked keys get −2, which is never in
        # the support; −∞ would make the cumulative sum NaN.
        scores = _at_least_float32(scores)
        top = masked_scores(scores.detach(), keep).amax(-1, keepdim=True).nan_to_num(neginf=0.0)
        shifted = scores - top if keep is None else torch.where(keep, scores - top, -2.0)
        ordered = shifted.sort(-1, descending=True).values
        rank = torch.arange(1, shifted.shape[-1] + 1, device=shifted.device, dtype=shifted.dtype)
        excess = ordered.cumsum(-1) - 1
        support_size = (rank * ordered > excess).sum(-1, keepdim=True).clamp(min=1)
        threshold = excess.gather(-1, support_size - 1) / support_size
        return _zero_masked(torch.relu(shifted - threshold), keep)


class Hard(RandomModule, RecordingModule):
    """Weight 1 for a single key: sampled from softmax(scores) in training, the most likely one in evaluation ("hard"
    attention, Xu et al. 2015, §4.1).

    Sampling has no gradient, so the scores are trained by REINFORCE (Williams 1992) with the loss
    policy_weight · (cost − baseline · count) · log p(sampled key) − entropy_weight · H(p). `cost` is the cross-entropy
    (without label smoothing and auxiliary losses) of the `count` tokens that the sampled key could influence. The
    baseline is a moving average of the cost per token with decay `baseline_decay`; it does not change the expected
    gradient but reduces its variance. `entropy_weight` scales an entropy bonus, which keeps the distribution from
    collapsing too early.
    """

    is_softmax = False

    def __init__(
        self, *, policy_weight: NotNegative = 1.0, entropy_weight: NotNegative = 0.01, baseline_decay: Rate = 0.95
    ):
        super().__init__()
        self.policy_weight, self.entropy_weight, self.baseline_decay = policy_weight, entropy_weight, baseline_decay
        self.baseline: Tensor
        self.baseline_ready: Tensor
        self.register_buffer("baseline", torch.zeros(()))
        self.register_buffer("baseline_ready", torch.zeros(()))

    def forward(self, scores: Scores, keep: AttentionMask | None, queries: Places | None = None) -> Scores:
        p = _zero_masked(_softmax(scores, keep), keep)
        chosen = self.sample(p.detach()) if self.training else p.argmax(-1, keepdim=True)
        if queries is not None and self.has_listener("sampled"):
            tiny = torch.finfo(p.dtype).tiny
            log_p = p.clamp(min=tiny).log()
            log_p_and_entropy = [log_p.gather(-1, chosen)[..., 0], -(p * log_p).sum(-1)]
            self.note("sampled", torch.stack(log_p_and_entropy, -1), queries)
        weights = torch.zeros_like(p).scatter_(-1, chosen, 1.0)
        return _zero_masked(weights, keep)

    def sample(self, p: Scores) -> Tensor:
        """One key index per query [B H T 1], drawn with the probabilities p. For a row of zeros it is arbitrary."""
        uniform = torch.rand(*p.shape[:-1], 1, device=p.device, dtype=p.dtype, generator=self.generator)
        reached = p.cumsum(-1) > uniform * p.sum(-1, keepdim=True)
        return reached.int().argmax(-1, keepdim=True)

    def policy_loss(
        self, sampled: Tensor, cost: Float[Tensor, "B T"], count: Float[Tensor, "B T"], keep: Bool[Tensor, "B T"]
    ) -> Tensor:
        """Σ policy_weight · (cost − baseline · count) · log p − entropy_weight · H over heads and positions that are
        not padding. Updates the baseline."""
        log_p, entropy = sampled.unbind(-1)
        advantage = ((cost - self.baseline * count) * self.policy_weight).detach()
        loss = (advantage[:, None] * log_p - self.entropy_weight * entropy) * keep[:, None]
        self._update_baseline(cost[keep], count[keep])
        return loss.sum()

    def _update_baseline(self, cost: Tensor, count: Tensor) -> None:
        tokens = count.sum()
        if not tokens:
            return
        with torch.no_grad():  # the first mean replaces the initial 0, which would be far off
            weight = torch.where(self.baseline_ready > 0, 1 - self.baseline_decay, 1.0)
            self.baseline.lerp_(cost.detach().sum() / tokens, weight)
            self.baseline_ready.fill_(1.0)


NORMALIZERS: dict[str, Callable[..., Normalizer]] = {"softmax": Softmax, "hard": Hard, "sparsemax": Sparsemax}

NormalizerSlot = Annotated[Callable[..., Normalizer], Slot(NORMALIZERS)]
