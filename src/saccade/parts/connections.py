"""Connections: the residual connection around a sublayer, with its norm and dropout. (x, sublayer) → x."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Rate, Slot, build
from saccade.parts.dropout import Dropout, StochasticDepth
from saccade.parts.fused_forms import fused_form
from saccade.parts.norms import FusedNorm, LayerNorm, Norm
from saccade.shapes import States


class Connection(Protocol):
    """The contract of a connection.

    `needs_final_norm`: the output of a stack of these connections is not normalized, so the stack ends with a norm.
    The option `stochastic_depth` is the rate at which rows of a batch skip the sublayer in training.
    """

    @property
    def needs_final_norm(self) -> bool: ...
    def __call__(self, x: States, sublayer: Callable[[Tensor], Tensor]) -> States: ...


class FusedResidual:
    """The fused form of a connection: `before` maps x to the input of the sublayer, `after` adds the sublayer's output
    to x. `norm` is the fused form of its norm, None if that has none."""

    def __init__(self, norm: nn.Module, is_pre_norm: bool):
        self.norm = fused_form(norm, FusedNorm)
        self.is_pre_norm = is_pre_norm
        normed: Callable[[Tensor], Tensor] = self.norm or norm
        self.before: Callable[[Tensor], Tensor] = normed if is_pre_norm else lambda x: x
        self.after: Callable[[Tensor, Tensor], Tensor] = torch.add if is_pre_norm else lambda x, y: normed(x + y)


class PostNorm(nn.Module):
    """y = norm(x + dropout(f(x))), as in the original Transformer (Vaswani et al. 2017)."""

    needs_final_norm = False
    fused_options: ClassVar[set[str]] = {"stochastic_depth"}  # only in training

    def __init__(
        self,
        dim: int,
        norm: Callable[..., Norm] = LayerNorm,
        dropout: float = 0.0,
        *,
        stochastic_depth: Rate = 0.0,
    ):
        super().__init__()
        self.norm: Norm = build(norm, "norm", dim=dim)
        self.dropout, self.stochastic_depth = Dropout(dropout), StochasticDepth(stochastic_depth)

    def forward(self, x: States, sublayer: Callable[[Tensor], Tensor]) -> States:
        return self.norm(self.dropout.added(x, self.stochastic_depth(sublayer(x))))

    def fused(self) -> FusedResidual:
        return FusedResidual(self.get_submodule("norm"), is_pre_norm=False)


class PreNorm(nn.Module):
    """y = x + dropout(f(norm(x))): the identity path carries gradients past every norm, so deep stacks train without a
    long warm-up (Xiong et al. 2020, arXiv:2002.04745). The stack needs a final norm."""

    needs_final_norm = True
    fused_options: ClassVar[set[str]] = {"stochastic_depth"}  # only in training

    def __init__(
        self,
        dim: int,
        norm: Callable[..., Norm] = LayerNorm,
        dropout: float = 0.0,
        *,
        stochastic_depth: Rate = 0.0,
    ):
        super().__init__()
        self.norm: Norm = build(norm, "norm", dim=dim)
        self.dropout, self.stochastic_depth = Dropout(dropout), StochasticDepth(stochastic_depth)

    def forward(self, x: States, sublayer: Callable[[Tensor], Tensor]) -> States:
        return self.dropout.added(x, self.stochastic_depth(sublayer(self.norm(x))))

    def fused(self) -> FusedResidual:
        return FusedResidual(self.get_submodule("norm"), is_pre_norm=True)


CONNECTIONS: dict[str, Callable[..., Connection]] = {"pre": PreNorm, "post": PostNorm}

ConnectionSlot = Annotated[Callable[..., Connection], Slot(CONNECTIONS)]
