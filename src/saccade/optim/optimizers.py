"""Optimizers: a model in, a torch optimizer for all its weights out. Its tensors by parameter name are saved with the
run."""

from collections.abc import Callable
from typing import Annotated

import torch
from torch import nn

from saccade.config import NotNegative, Positive, Rate, Slot
from saccade.errors import BuildError
from saccade.optim.muon import Muon


def adamw(
    model: nn.Module,
    *,
    betas: tuple[Rate, Rate] = (0.9, 0.98),
    eps: Positive = 1e-9,
    weight_decay: NotNegative = 0.0,
) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019). Vectors (biases, norms) do not decay."""
    return _adamw(list(model.parameters()), betas, eps, weight_decay)


def muon(
    model: nn.Module,
    *,
    momentum: Rate = 0.95,
    betas: tuple[Rate, Rate] = (0.9, 0.98),
    eps: Positive = 1e-9,
    weight_decay: NotNegative = 0.0,
) -> torch.optim.Optimizer:
    """Muon (Jordan et al. 2024) for linear maps between hidden states, AdamW for words, head, norms and biases."""
    matrices = _hidden_maps(model)
    if any(hasattr(matrix, "device_mesh") for matrix in matrices):  # DTensors: importing their class takes a second
        raise BuildError('muon needs whole matrices; give train.ranks = "replicated", or take adamw')
    taken = {id(matrix) for matrix in matrices}
    rest = _adamw([p for p in model.parameters() if id(p) not in taken], betas, eps, weight_decay)
    return Muon(matrices, rest, momentum=momentum, weight_decay=weight_decay)


def _adamw(
    parameters: list[nn.Parameter], betas: tuple[float, float], eps: float, weight_decay: float
) -> torch.optim.Optimizer:
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], betas=betas, eps=eps, fused=True)
    # torch 2.13 does not count a fused step as a change, and whoever keeps copies of weights asks for that
    optimizer.register_step_post_hook(lambda *_: torch.autograd.graph.increment_version(parameters))
    return optimizer


def _hidden_maps(model: nn.Module) -> list[nn.Parameter]:
    """The matrices of linear layers. Not the head's: what it maps to are words, each with a row of its own."""
    layers = (part for name, part in model.named_modules() if not name.startswith("head."))
    linear = {id(part.weight) for part in layers if isinstance(part, nn.Linear)}
    return [p for p in model.parameters() if id(p) in linear]


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw, "muon": muon}

OptimizerSlot = Annotated[Callable[..., torch.optim.Optimizer], Slot(OPTIMIZERS)]
