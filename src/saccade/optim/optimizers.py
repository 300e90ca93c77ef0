"""Optimizers: parameters in, torch optimizer out. Its tensors by parameter name are saved with the run."""

from collections.abc import Callable, Iterable
from typing import Annotated

import torch
from torch import nn

from saccade.config import NotNegative, Positive, Rate, Slot


def adamw(
    parameters: Iterable[nn.Parameter],
    *,
    betas: tuple[Rate, Rate] = (0.9, 0.98),
    eps: Positive = 1e-9,
    weight_decay: NotNegative = 0.0,
) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019). Vectors (biases, norms) do not decay."""
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], betas=betas, eps=eps, fused=True)
    # torch 2.13 does not count a fused step as a change, and whoever keeps copies of weights asks for that
    optimizer.register_step_post_hook(lambda *_: torch.autograd.graph.increment_version(parameters))
    return optimizer


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw}

OptimizerSlot = Annotated[Callable[..., torch.optim.Optimizer], Slot(OPTIMIZERS)]
