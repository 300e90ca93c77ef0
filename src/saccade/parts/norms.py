"""Norms: x → x. A new norm is a class here and a line in the table."""

from collections.abc import Callable
from typing import Annotated

from torch import nn

from saccade.config import Positive, Slot


class LayerNorm(nn.LayerNorm):
    """y = gain · (x − mean) / √(variance + eps) + bias over the last axis (Ba, Kiros & Hinton 2016)."""

    def __init__(self, dim: int, *, eps: Positive = 1e-5):
        super().__init__(dim, eps=eps)


NORMS: dict[str, Callable[..., nn.Module]] = {"layer": LayerNorm}

NormSlot = Annotated[Callable[..., nn.Module], Slot(NORMS)]
