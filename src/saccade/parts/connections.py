"""Connections: how a sublayer is joined to the stream that passes it. (x, sublayer) → x."""

from collections.abc import Callable
from typing import Annotated, Protocol

from torch import Tensor, nn

from saccade.config import Slot, build
from saccade.parts.dropout import Dropout
from saccade.parts.norms import LayerNorm
from saccade.shapes import States


class Connection(Protocol):
    """`closes`: the stream leaves a stack of these unnormalised, so the stack ends with a norm."""

    needs_final_norm: bool

    def __call__(self, x: States, sublayer: Callable[[Tensor], Tensor]) -> States: ...


class PostNorm(nn.Module):
    """x → norm(x + f(x)), the original Transformer (Vaswani et al. 2017)."""

    needs_final_norm = False

    def __init__(self, dim: int, norm: Callable[..., nn.Module] = LayerNorm, dropout: float = 0.0):
        super().__init__()
        self.norm = build(norm, "norm", dim=dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: States, sublayer: Callable[[Tensor], Tensor]) -> States:
        return self.norm(self.dropout.added(x, sublayer(x)))


class PreNorm(nn.Module):
    """x → x + f(norm(x)): gradients have a free way down (Xiong et al. 2020, arXiv:2002.04745)."""

    needs_final_norm = True

    def __init__(self, dim: int, norm: Callable[..., nn.Module] = LayerNorm, dropout: float = 0.0):
        super().__init__()
        self.norm = build(norm, "norm", dim=dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: States, sublayer: Callable[[Tensor], Tensor]) -> States:
        return self.dropout.added(x, sublayer(self.norm(x)))


CONNECTIONS: dict[str, Callable[..., nn.Module]] = {"pre": PreNorm, "post": PostNorm}

ConnectionSlot = Annotated[Callable[..., nn.Module], Slot(CONNECTIONS)]
