"""Products of many rows with a matrix, by whichever of torch's libraries is the faster on this CPU.

torch multiplies 32-bit floats with MKL, which takes only the narrower instructions of AMD's processors. oneDNN, which
comes with torch too, takes those of AVX-512: twice as fast. But it makes a program for every number of rows that it
meets, in a millisecond or more, and keeps a thousand of them. So rows are padded with zeros to a few numbers.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

MIN_ONEDNN_ROWS, MIN_ONEDNN_MULTIPLICATIONS = 16, 1 << 21  # fewer are not worth asking oneDNN


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b, as F.linear gives it; but where oneDNN multiplies, gradients cannot be differentiated once more."""
    if not _worth_it(x, weight):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        y: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[assignment]
    else:
        y = matmul(padded(rows), weight, bias)[: len(rows)]
    return y.view(*x.shape[:-1], len(weight))


class FastLinear(nn.Linear):
    """nn.Linear, with such products."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        return linear(input, self.weight, self.bias)


def matmul(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b for rows that are `padded`, without gradients."""
    if _worth_it(x, weight):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


def padded(rows: Tensor) -> Tensor:
    """With rows of zeros below, if there are too many numbers of rows for the library to know."""
    missing = rounded(len(rows)) - len(rows) if prefers_onednn() else 0
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def rounded(rows: int) -> int:
    """Up to the next of eight numbers from each power of two to the next, but a multiple of 16."""
    step = max(16, 1 << max(0, rows.bit_length() - 4))
    return -(-rows // step) * step


@cache
def prefers_onednn() -> bool:
    """Whether this is an AMD processor with AVX-512, and this torch has the product."""
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.cpu.get_capabilities().get("avx512_f", False)
    facts = Path("/proc/cpuinfo")
    return bool(known) and facts.exists() and "AuthenticAMD" in facts.read_text(encoding="utf-8", errors="replace")


def _worth_it(x: Tensor, weight: Tensor) -> bool:
    return (
        prefers_onednn()
        and x.dtype is weight.dtype is torch.float32
        and x.is_cpu
        and x.numel() >= MIN_ONEDNN_ROWS * x.shape[-1]
        and x.numel() * len(weight) >= MIN_ONEDNN_MULTIPLICATIONS
        and not torch.compiler.is_compiling()
    )


class _Linear(torch.autograd.Function):
    """The rows are padded again on the way back, rather than kept twice."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return matmul(padded(rows), weight, bias)[: len(rows)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[reportIncompatibleMethodOverride]
        rows, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        d_y = padded(grads[0])
        d_rows = matmul(d_y, weight.t())[: len(rows)] if wanted[0] else None
        d_weight = matmul(d_y.t(), padded(rows).t()) if wanted[1] else None
        return d_rows, d_weight, d_y.sum(0) if wanted[2] else None
