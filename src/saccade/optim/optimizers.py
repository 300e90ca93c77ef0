"""Optimizers: model → torch optimizer of all its weights that are not frozen. The learning rate of a parameter group is
that of the schedule times the group's `scale`, if it has one. Checkpoints hold the optimizer's state by parameter
name."""

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
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019). Weight decay applies to matrices, not to biases and
    norms."""
    return _adamw(_trained(model), betas, eps, weight_decay)


def muon(
    model: nn.Module,
    *,
    momentum: Rate = 0.95,
    betas: tuple[Rate, Rate] = (0.9, 0.98),
    eps: Positive = 1e-9,
    weight_decay: NotNegative = 0.0,
) -> torch.optim.Optimizer:
    """Muon (Jordan et al. 2024) for the matrices of linear layers, AdamW for embeddings, head, norms and biases. A part
    with stacked matrices [… rows columns], such as those of experts, names these parameters in `stacked_matrices`: Muon
    orthogonalizes each matrix by itself. Without that, a parameter of three or more axes, such as the kernel of a
    convolution, is updated by AdamW."""
    matrices = _matrices(model)
    if any(hasattr(matrix, "device_mesh") for matrix in matrices):  # a DTensor; importing its class takes a second
        raise BuildError(
            'muon needs whole matrices, but they are sharded; use train.parallelism = "replicated", or adamw'
        )
    matrix_ids = {id(matrix) for matrix in matrices}
    rest = _adamw([p for p in _trained(model) if id(p) not in matrix_ids], betas, eps, weight_decay)
    return Muon(matrices, rest, momentum=momentum, weight_decay=weight_decay)


def _adamw(
    parameters: list[nn.Parameter], betas: tuple[float, float], eps: float, weight_decay: float
) -> torch.optim.Optimizer:
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=betas, eps=eps, fused=True)
    # a fused step of torch 2.13 does not increase the parameters' version counters, but the fused decoder, which keeps
    # copies of the weights, relies on them
    optimizer.register_step_post_hook(lambda *_: torch.autograd.graph.increment_version(parameters))
    return optimizer


def _trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are not frozen."""
    return [p for p in model.parameters() if p.requires_grad]


def _matrices(model: nn.Module) -> list[nn.Parameter]:
    """The weights of linear layers, and the stacked matrices that a part names in `stacked_matrices`. Without the
    head's: its rows are independent vectors, one per token."""
    found: set[int] = set()
    for name, part in model.named_modules():
        if name.partition(".")[0] != "head":
            own = ("weight",) if isinstance(part, nn.Linear) else getattr(part, "stacked_matrices", ())
            found |= {id(part.get_parameter(parameter)) for parameter in own}
    return [p for p in _trained(model) if id(p) in found]


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw, "muon": muon}

OptimizerSlot = Annotated[Callable[..., torch.optim.Optimizer], Slot(OPTIMIZERS)]
