"""Muon: the step of a matrix is its momentum with all singular values brought to one (Jordan et al. 2024)."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

# A quintic after Newton and Schulz, steep at zero: so many rounds of it bring singular values to between 0.7 and 1.2.
NEWTON_SCHULZ_STEPS, LINEAR, CUBIC, QUINTIC = 5, 3.4445, -4.7750, 2.0315
UPDATE_RMS = 0.2  # of an entry of a step, as Adam's are: one rate serves both (Liu et al. 2025)


class Muon(torch.optim.Optimizer):
    """For matrices; `rest` has all other parameters. Both are one to whoever sets rates and keeps memories."""

    def __init__(
        self, matrices: list[nn.Parameter], rest: torch.optim.Optimizer, *, momentum: float, weight_decay: float
    ):
        super().__init__([{"params": matrices}], {"lr": 0.001, "momentum": momentum, "weight_decay": weight_decay})
        self.own, self.rest = self.param_groups[0], rest
        self.param_groups += rest.param_groups
        rest.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        cost = closure() if closure else None
        for matrices in of_one_shape(self.own["params"]):
            self._step(matrices)
        self.rest.step()
        return cost

    def _step(self, matrices: list[nn.Parameter]) -> None:
        rate, decay = self.own["lr"], self.own["weight_decay"]
        steps = orthogonal(torch.stack([self._ahead(p) for p in matrices]))
        for matrix, step in zip(matrices, steps, strict=True):
            matrix.mul_(1 - rate * decay).add_(step, alpha=-rate * UPDATE_RMS * max(step.shape) ** 0.5)

    def _ahead(self, matrix: nn.Parameter) -> Tensor:
        """The momentum, with the newest gradient once more, as Nesterov looks ahead."""
        assert matrix.grad is not None
        memory = self.state[matrix]
        if not memory:
            memory["momentum"] = torch.zeros_like(matrix)
        memory["momentum"].lerp_(matrix.grad, 1 - self.own["momentum"])
        return matrix.grad.lerp(memory["momentum"], self.own["momentum"])


def of_one_shape(matrices: Iterable[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
    """Those that have a gradient; what is of one shape together, so that one call multiplies them all."""
    groups: defaultdict[torch.Size, list[nn.Parameter]] = defaultdict(list)
    for matrix in matrices:
        if matrix.grad is not None:
            groups[matrix.shape].append(matrix)
    return groups.values()


def orthogonal(matrices: Tensor) -> Tensor:
    """About the nearest matrices whose rows, or columns if those are fewer, are orthonormal. (n, rows, columns)."""
    x = matrices.to(compute_dtype(matrices.device.type))
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x  # the smaller square
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=CUBIC, alpha=QUINTIC), x, beta=LINEAR)
    return (x.mT if tall else x).to(matrices.dtype)


@cache
def compute_dtype(device: str) -> torch.dtype:
    """bfloat16 where it is fast: singular values need only be about one."""
    able = device != "cpu" or any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))
    return torch.bfloat16 if able else torch.float32
