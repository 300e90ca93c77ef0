"""Stacks: the order in which layers are visited. The layers belong to the encoder or decoder and are handed in,
so a weight is called `encoder.layers.3.…` under every stack.

`count(depth)` says how many layers must exist; then the two verbs of a mixer. Only a stack may change the length.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

from torch import nn

from saccade.config import Slot
from saccade.places import Memory, Places
from saccade.shapes import States


class Layer(Protocol):
    """What a stack knows of a layer. `closing` makes the norm that ends a stack of such layers, or nothing."""

    def final_norm(self) -> nn.Module: ...
    def start(self, memory: Memory | None, rows: int) -> Any: ...
    def __call__(self, x: States, places: Places, state: Any) -> tuple[States, Any]: ...


class Stack(Protocol):
    """The contract of a stack."""

    def count(self, depth: int) -> int: ...
    def start(self, layers: Sequence[Layer], memory: Memory | None, rows: int) -> Any: ...
    def __call__(
        self, layers: Sequence[Layer], x: States, places: Places, state: Any
    ) -> tuple[States, Places, Any]: ...


class PlainStack(nn.Module):
    """Each layer once, from the bottom to the top."""

    def count(self, depth: int) -> int:
        return depth

    def start(self, layers: Sequence[Layer], memory: Memory | None, rows: int) -> tuple[Any, ...]:
        return tuple(layer.start(memory, rows) for layer in layers)

    def forward(
        self, layers: Sequence[Layer], x: States, places: Places, state: tuple[Any, ...]
    ) -> tuple[States, Places, tuple[Any, ...]]:
        after = []
        for layer, before in zip(layers, state, strict=True):
            x, now = layer(x, places, before)
            after.append(now)
        return x, places, tuple(after)


STACKS: dict[str, Callable[..., nn.Module]] = {"plain": PlainStack}

StackSlot = Annotated[Callable[..., nn.Module], Slot(STACKS)]
