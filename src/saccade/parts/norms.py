"""Norms: x → x. To add one, write a class here and list it in NORMS."""

from collections.abc import Callable
from typing import Annotated, Protocol

from torch import Tensor, nn

from saccade.config import Positive, Slot
from saccade.shapes import Float


class Norm(Protocol):
    """The contract of a norm: it maps each vector of the last axis by itself."""

    def __call__(self, x: Float[Tensor, "*n D"]) -> Float[Tensor, "*n D"]: ...


class LayerNorm(nn.LayerNorm):
    """y = gain · (x − mean) / √(variance + eps) + bias over the last axis (Ba, Kiros & Hinton 2016)."""

    def __init__(self, dim: int, *, eps: Positive = 1e-5):
        super().__init__(dim, eps=eps)


NORMS: dict[str, Callable[..., Norm]] = {"layer": LayerNorm}

NormSlot = Annotated[Callable[..., Norm], Slot(NORMS)]
