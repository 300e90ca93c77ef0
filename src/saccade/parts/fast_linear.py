"""Linear layers, computed by whichever of torch's two libraries is faster on this CPU.

torch multiplies 32-bit matrices with MKL, which uses only the narrower instructions (AVX2) on AMD processors. oneDNN,
which is also part of torch, uses AVX-512 there and is twice as fast. But oneDNN compiles a kernel for each number of
rows that occurs, which takes a millisecond or more, and caches a thousand of them. The rows are therefore padded with
zeros, so that there are only a few different row counts.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from saccade.devices import is_mixed

# smaller products gain nothing from oneDNN
MIN_ONEDNN_ROWS, MIN_ONEDNN_MULTIPLICATIONS = 16, 1 << 21


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight.T + bias, as F.linear. Where oneDNN computes it, there are no second derivatives."""
    if not _uses_onednn(x, weight):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    trained = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if trained and torch.is_grad_enabled():
        y: Tensor = _OneDnnLinear.apply(rows, weight, bias)
    else:
        y = linear_no_grad(pad_rows(rows), weight, bias)[: len(rows)]
    return y.view(*x.shape[:-1], len(weight))


class FastLinear(nn.Linear):
    """nn.Linear that computes with `linear` of this module."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        return linear(input, self.weight, self.bias)


def linear_no_grad(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias without autograd. The rows of x should come from `pad_rows`."""
    if _uses_onednn(x, weight):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


def pad_rows(rows: Tensor) -> Tensor:
    """Append rows of zeros up to `padded_count`, if this CPU uses oneDNN."""
    missing = padded_count(len(rows)) - len(rows) if prefers_onednn() and rows.is_cpu else 0
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def padded_count(rows: int) -> int:
    """Round up to a multiple of 16, and to at most eight different values between two powers of two."""
    step = max(16, 1 << max(0, rows.bit_length() - 4))
    return -(-rows // step) * step


@cache
def prefers_onednn() -> bool:
    """Whether this is an AMD processor with AVX-512 and this torch has the oneDNN operator."""
    supported = hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.cpu.get_capabilities().get("avx512_f", False)
    cpu_info = Path("/proc/cpuinfo")
    return (
        bool(supported)
        and cpu_info.exists()
        and "AuthenticAMD" in cpu_info.read_text(encoding="utf-8", errors="replace")
    )


def _uses_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        prefers_onednn()
        and x.dtype is weight.dtype is torch.float32
        and x.is_cpu
        and not is_mixed(x)
        and x.numel() >= MIN_ONEDNN_ROWS * x.shape[-1]
        and x.numel() * len(weight) >= MIN_ONEDNN_MULTIPLICATIONS
        and not torch.compiler.is_compiling()
    )


class _OneDnnLinear(torch.autograd.Function):
    """x @ weight.T + bias with gradients. The backward pass pads the rows again instead of saving the padded copy."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return linear_no_grad(pad_rows(rows), weight, bias)[: len(rows)]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _linear_gradients(ctx, *grads)


@once_differentiable
def _linear_gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of rows, weight and bias, each only if it is needed."""
    rows, weight = ctx.saved_tensors
    needs_rows, needs_weight, needs_bias = ctx.needs_input_grad
    d_y = pad_rows(grads[0])
    d_rows = linear_no_grad(d_y, weight.t())[: len(rows)] if needs_rows else None
    d_weight = linear_no_grad(d_y.t(), pad_rows(rows).t()) if needs_weight else None
    return d_rows, d_weight, d_y.sum(0) if needs_bias else None
