"""The contracts of normalizers (scores → attention weights) and of the policy loss of hard attention."""

from typing import Any

import torch

from contracts.checks.common import SOURCE_LENGTHS, TARGET_LENGTHS, assert_close, padding_mask
from contracts.checks.running import samples_attention
from contracts.variants import B, S, T


def check_normalizer(normalizer: Any) -> None:
    """The weights sum to one and are zero where masked. If all keys are masked, all weights are zero and no gradient
    is NaN."""
    generator = torch.Generator().manual_seed(0)
    scores = (2 * torch.randn(B, 2, T, S, generator=generator)).requires_grad_()
    keep = padding_mask(SOURCE_LENGTHS)[:, None, None].repeat(1, 1, T, 1)
    keep[0, :, 3] = False
    sums = keep.any(-1).float().expand(B, 2, T)
    for training in (True, False):
        normalizer.train(training)
        weights = normalizer(scores, keep)
        assert_close(weights.sum(-1), sums, "the sum of the weights (0 where all keys are masked)", 1e-5)
        assert (weights >= 0).all(), "negative weights"
        assert not weights[~keep.expand_as(weights)].any(), "masked keys have weight"
        unmasked = normalizer(scores, None)
        assert_close(unmasked.sum(-1), torch.ones(B, 2, T), "the sum of the weights without a mask", 1e-5)
    assert torch.equal(unmasked.argmax(-1), scores.argmax(-1)), "in evaluation mode the best score has not most weight"
    for offset in (-50.0, 50.0):
        assert_close(normalizer(scores + offset, keep), weights, "the weights with a constant added to all scores")
    if samples_attention(normalizer):
        assert not weights.requires_grad, "a sampled choice has a gradient"
        assert set(weights.unique().tolist()) <= {0.0, 1.0}, "hard attention has weights other than 0 and 1"
        return
    weights.square().sum().backward()
    assert scores.grad.isfinite().all(), "the gradient of a row whose keys are all masked is not finite"
    assert not scores.grad[~keep.expand_as(scores)].any(), "masked scores have a gradient"


def check_policy_loss(normalizer: Any) -> None:
    """The loss is Σ advantage · log p − entropy bonus over real positions and heads, where the advantage uses the
    baseline from before this batch; the baseline is the moving mean of the cost per token."""
    generator = torch.Generator().manual_seed(0)
    keep, heads = padding_mask(TARGET_LENGTHS), 2
    cost = torch.rand(B, T, generator=generator) + 1
    count = torch.randint(1, 5, (B, T), generator=generator).float()
    real = keep[:, None].expand(B, heads, T)
    baseline = torch.zeros(())
    for _ in range(3):
        sampled = torch.randn(B, heads, T, 2, generator=generator).requires_grad_()
        log_p, entropy = sampled.detach().unbind(-1)
        advantage = normalizer.policy_weight * (cost - baseline * count)[:, None].expand(B, heads, T)
        total = normalizer.policy_loss(sampled, cost, count, keep)
        assert_close(total.detach(), (advantage * log_p - normalizer.entropy_weight * entropy)[real].sum(), "the loss")
        total.backward()
        assert_close(sampled.grad[..., 0], advantage * real, "the gradient of log p")
        assert_close(sampled.grad[..., 1], -normalizer.entropy_weight * real, "the gradient of the entropy")
        mean = cost[keep].sum() / count[keep].sum()
        baseline = mean if not baseline else baseline + (1 - normalizer.baseline_decay) * (mean - baseline)
        assert_close(normalizer.baseline, baseline, "the baseline")
        cost = cost + 1
    before = normalizer.baseline.clone()
    normalizer.policy_loss(torch.zeros(B, heads, T, 2), cost, count, torch.zeros_like(keep))
    assert torch.equal(normalizer.baseline, before), "a batch that is all padding changed the baseline"
