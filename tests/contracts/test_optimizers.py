"""Every optimizer and every schedule satisfies its contract."""

from typing import Any

import pytest
import torch
from torch import nn

from contracts.checks.common import perturbed
from contracts.checks.optimizers import check_optimizer, check_optimizer_resumes
from contracts.checks.schedules import check_schedule
from contracts.choices import build_choice, every
from contracts.variants import filled, options
from saccade.config import build
from saccade.optim.optimizers import OPTIMIZERS
from saccade.optim.schedules import SCHEDULES


@every(SCHEDULES)
@pytest.mark.parametrize("warmup", [1, 10])
def test_schedule_has_linear_warmup_and_then_never_rises(tree: Any, warmup: int) -> None:
    schedule = build_choice(SCHEDULES, tree | {"rate": 0.003, "warmup": warmup}, updates=100)
    check_schedule(schedule, 0.003, warmup, 100)


@every(SCHEDULES)
def test_schedule_ends_at_last_rate(tree: Any) -> None:
    if "last" not in options(SCHEDULES, tree["kind"]):
        pytest.skip("the schedule has no last rate")
    schedule = build_choice(SCHEDULES, tree | {"rate": 0.003, "warmup": 10, "last": 0.1}, updates=110)
    assert schedule(110) == schedule(10_000) == pytest.approx(0.0003)
    assert schedule(60) == pytest.approx(0.00165), "halfway between warmup and end, the rate is not the mean of both"


@every(OPTIMIZERS)
def test_optimizer_reduces_the_loss(tree: Any) -> None:
    check_optimizer(lambda model: build(filled(OPTIMIZERS, tree), "optimizer", model=model))


@every(OPTIMIZERS)
def test_optimizer_resumes_exactly(tree: Any) -> None:
    check_optimizer_resumes(lambda model: build(filled(OPTIMIZERS, tree), "optimizer", model=model))


@every(OPTIMIZERS)
def test_weight_decay_shrinks_matrices_but_not_vectors(tree: Any) -> None:
    if "weight_decay" not in options(OPTIMIZERS, tree["kind"]):
        pytest.skip("the optimizer has no weight decay")
    layer = perturbed(nn.Linear(5, 3))
    before = {name: weight.detach().clone() for name, weight in layer.named_parameters()}
    choice = filled(OPTIMIZERS, tree | {"weight_decay": 0.5})
    optimizer = build(choice, "optimizer", model=layer)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for weight in layer.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), 0.95 * before["weight"])
    torch.testing.assert_close(layer.bias.detach(), before["bias"])
