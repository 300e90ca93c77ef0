"""R-Drop: the mean loss of two passes with different dropout, plus the divergence of their outputs."""

from functools import partial
from typing import Any

import pytest
import torch

from contracts.checks.batches import random_corpus
from contracts.checks.common import perturbed
from contracts.checks.heads import symmetric_kl
from saccade.config import python_layer, resolve
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, assemble, expand_block, sides_with_blocks
from saccade.tasks.guides import GuidedHead
from saccade.tasks.losses import teacher_forced_hidden
from saccade.tasks.task import Encoded
from saccade.tasks.translation import Translation

V = 100
BLOCK = {"self": {"heads": 2}, "cross": {"heads": 2}, "feed_forward": {"inner": 24}}


def model_of(rate: float) -> Model:
    tree: dict[str, Any] = {"dim": 16, "block": BLOCK, "encoder": {"depth": 1}, "decoder": {"depth": 1}}
    tree["dropout"] = {"residual": rate, "embedding": rate}
    layer = python_layer(tree)
    config = resolve(ModelConfig, expand_block(layer, sides_with_blocks(layer))).config
    torch.manual_seed(0)
    return perturbed(assemble(config, Tokens(V), V), by=0.1).train()


def gradients(model: Model, total: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(total, [*model.parameters()]))


def test_r_drop_without_dropout_equals_the_plain_loss() -> None:
    model, batch = model_of(0.0), random_corpus(11).batch(range(11))
    plain, r_drop = Translation().loss(model, batch), Translation(r_drop=3.0).loss(model, batch)
    assert r_drop.count == plain.count
    assert r_drop.logged["cost"] == pytest.approx(plain.logged["cost"])
    torch.testing.assert_close(r_drop.total, plain.total)
    for actual, expected in zip(gradients(model, r_drop.total), gradients(model, plain.total), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_r_drop_loss_is_half_of_that_of_liang_et_al() -> None:
    """Per token, half of −log p − log q + α (KL(p‖q) + KL(q‖p)) / 2, with label smoothing (Liang et al. 2021)."""
    model, batch = model_of(0.3), random_corpus(11).batch(range(11))
    torch.manual_seed(5)
    loss = Translation(r_drop=3.0).loss(model, batch)
    torch.manual_seed(5)
    hidden, target = teacher_forced_hidden(model, batch.doubled())
    log_probs = model.head.log_probs(hidden)
    costs = torch.nn.functional.cross_entropy(log_probs, target, reduction="sum", label_smoothing=0.1)
    expected = (costs + 3.0 * symmetric_kl(*log_probs.chunk(2))) / 2
    assert float(symmetric_kl(*log_probs.chunk(2)).detach()) > 1, (
        "both passes gave the same output, so nothing was tested"
    )
    torch.testing.assert_close(loss.total, expected, rtol=1e-5, atol=1e-4)
    for ours, theirs in zip(gradients(model, loss.total), gradients(model, expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_r_drop_does_not_double_the_guide_loss() -> None:
    model, corpus = model_of(0.0), random_corpus(11)
    guide = partial(GuidedHead, weight=0.7)
    Translation(guide=guide).prepare(Encoded(corpus, (), {}), lambda text: None)
    batch = corpus.batch(range(11))
    plain, r_drop = Translation(guide=guide).loss(model, batch), Translation(guide=guide, r_drop=3.0).loss(model, batch)
    assert r_drop.logged["guide"] == pytest.approx(plain.logged["guide"], rel=1e-4)
    torch.testing.assert_close(r_drop.total, plain.total)


def test_r_drop_has_no_effect_in_evaluation_mode() -> None:
    model, batch = model_of(0.3).eval(), random_corpus(3).batch(range(3))
    with torch.no_grad():
        plain, r_drop = Translation().loss(model, batch), Translation(r_drop=3.0).loss(model, batch)
    torch.testing.assert_close(r_drop.total, plain.total)
