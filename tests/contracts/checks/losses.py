"""The contract of the training loss: a sum over tokens, so that gradient accumulation is exact."""

import math

from contracts.checks.common import assert_close
from contracts.checks.running import small_corpus, without_sampling
from contracts.checks.searches import forced_log_prob
from saccade.data.tokenizers import END
from saccade.models.assemble import Model
from saccade.parts import Hard
from saccade.parts.token_costs import TokenCost
from saccade.tasks.losses import next_token_loss


def check_losses_are_sums(model: Model) -> None:
    """Two halves of a batch have the same total loss and gradient as the batch; only the training loop divides by the
    number of tokens. In training mode this includes the losses that parts add; in evaluation mode they add none."""
    adding = {
        name for name, part in model.named_modules() if isinstance(part, Hard) or getattr(part, "coverage_loss", 0)
    }
    for part in model.modules():
        if isinstance(part, Hard):
            part.baseline.fill_(0.7)
    for training in (False, True) if adding else (False,):
        model.train(training)
        with without_sampling(model):
            assert_losses_are_sums(model, {"cost"} | (adding if training else set()))


def assert_losses_are_sums(model: Model, names: set[str]) -> None:
    """`names` are those of the logged losses; "cost" is −log p of the targets, without label smoothing."""
    corpus = small_corpus(model)
    totals, counts, costs, gradients = [], [], [], []
    for batches in ([[0, 1, 2, 3]], [[2, 0], [3, 1]]):
        model.zero_grad()
        losses = [next_token_loss(model, corpus.batch(rows), TokenCost(0.1)) for rows in batches]
        for loss in losses:
            loss.total.backward()
        for loss in losses:
            assert set(loss.logged) == names, f"{sorted(loss.logged)} are logged, not {sorted(names)}"
        totals.append(sum(loss.total.detach() for loss in losses))
        counts.append(sum(loss.count for loss in losses))
        costs.append(sum(loss.logged["cost"] for loss in losses))
        gradients.append({n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None})
    assert counts == [5 + 1 + 2 + 6 + 4] * 2, "the count is not that of the target tokens and the four end tokens"
    assert_close(totals[1], totals[0], "the total loss of two halves")
    assert math.isclose(*costs, rel_tol=1e-4), "the cross-entropy of two halves differs from that of the batch"
    log_probs = [forced_log_prob(model, corpus.source(row), [*corpus.target(row), END]) for row in range(4)]
    assert math.isclose(costs[0], -sum(log_probs), rel_tol=1e-4), "the cost is not −log p of the targets"
    for name, gradient in gradients[0].items():
        scale = max(1.0, float(gradient.abs().max()))
        assert_close(gradients[1][name] / scale, gradient / scale, f"the gradient of {name}")
