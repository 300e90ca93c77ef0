"""The contracts of optimizers: they reduce a loss, and they resume exactly from their saved state."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def check_optimizer(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    """The loss falls, all weights are optimized, and the state consists of tensors, which a checkpoint can hold."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    optimizer = make(model)
    x, y = torch.randn(11, 5), torch.randn(11, 3)
    for group in optimizer.param_groups:
        group["lr"] = 0.05
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0], "the loss does not fall"
    optimized = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    assert optimized == {id(weight) for weight in model.parameters()}, "not all weights are optimized"
    for state in optimizer.state.values():
        assert all(isinstance(value, Tensor) for value in state.values()), "the state has entries that are no tensors"


def check_optimizer_resumes(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    """A new optimizer with the saved state takes bit-identical steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    x, y = torch.randn(11, 5), torch.randn(11, 3)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            group["lr"] = 0.05
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()

    optimizer = make(model)
    train(model, optimizer)
    resumed_model = copy.deepcopy(model)
    resumed = make(resumed_model)
    for weight, resumed_weight in zip(model.parameters(), resumed_model.parameters(), strict=True):
        for key, value in optimizer.state[weight].items():
            resumed.state[resumed_weight][key] = value.clone()
    train(model, optimizer)
    train(resumed_model, resumed)
    for weight, resumed_weight in zip(model.parameters(), resumed_model.parameters(), strict=True):
        assert torch.equal(weight, resumed_weight), "the resumed optimizer takes other steps"
