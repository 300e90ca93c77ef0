"""Muon: each weight matrix is updated with its momentum, orthogonalized (Jordan et al. 2024)."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import overload

import torch
from torch import Tensor, nn

# The quintic Newton-Schulz iteration of Jordan et al.: its slope at zero is steep, so five steps bring singular values
# to between 0.7 and 1.2.
NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of x, x³ and x⁵
UPDATE_RMS = 0.2  # of the entries of an update, as with Adam, so both can use the same learning rate (Liu et al. 2025)


class Muon(torch.optim.Optimizer):
    """Muon for `matrices` [… rows columns], together with the optimizer `rest` of all other parameters. Of a parameter
    that holds several matrices, each is orthogonalized by itself.

    The parameter groups and the state of both are joined, so learning rates are set and the state is saved as for a
    single optimizer.
    """

    def __init__(
        self, matrices: list[nn.Parameter], rest: torch.optim.Optimizer, *, momentum: float, weight_decay: float
    ):
        super().__init__([{"params": matrices}], {"lr": 0.001, "momentum": momentum, "weight_decay": weight_decay})
        self.group, self.rest = self.param_groups[0], rest
        self.param_groups += rest.param_groups
        rest.state = self.state

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = closure() if closure else None
        for matrices in grouped_by_shape(self.group["params"]):
            self._update(matrices)
        self.rest.step()
        return loss

    def _update(self, matrices: list[nn.Parameter]) -> None:
        """Update parameters of the same shape."""
        rate, decay = self.group["lr"], self.group["weight_decay"]
        momentum = torch.stack([self._nesterov_momentum(matrix) for matrix in matrices])
        updates = orthogonalized(momentum.flatten(0, -3)).view_as(momentum)
        # The entries of an orthogonalized matrix have an RMS of 1 / √max(rows, columns).
        for matrix, update in zip(matrices, updates, strict=True):
            matrix.mul_(1 - rate * decay).add_(update, alpha=-rate * UPDATE_RMS * max(update.shape[-2:]) ** 0.5)

    def _nesterov_momentum(self, matrix: nn.Parameter) -> Tensor:
        """Update the momentum of a matrix and return Nesterov's version of it, which adds the new gradient once
        more."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        state["momentum"].lerp_(matrix.grad, 1 - self.group["momentum"])
        return matrix.grad.lerp(state["momentum"], self.group["momentum"])


def grouped_by_shape(matrices: Iterable[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
    """The matrices that have a gradient, in groups of the same shape: each group is one batched product."""
    groups: defaultdict[torch.Size, list[nn.Parameter]] = defaultdict(list)
    for matrix in matrices:
        if matrix.grad is not None:
            groups[matrix.shape].append(matrix)
    return groups.values()


def orthogonalized(matrices: Tensor) -> Tensor:
    """Approximately the nearest matrices with orthonormal rows (or columns, if there are fewer columns than rows).
    Shape [n, rows, columns]."""
    x = matrices.to(compute_dtype(matrices.device.type))
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x  # so that x @ x.mT is the smaller of the two Gram matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    linear, cubic, quintic = NEWTON_SCHULZ_COEFFICIENTS
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), x, beta=linear)
    return (x.mT if tall else x).to(matrices.dtype)


@cache
def compute_dtype(device: str) -> torch.dtype:
    """bfloat16 if the device multiplies it fast: the singular values need to be only approximately one."""
    cpu_instructions = ("avx512_bf16", "amx_bf16")
    fast = device != "cpu" or any(torch.cpu.get_capabilities().get(name) for name in cpu_instructions)
    return torch.bfloat16 if fast else torch.float32
