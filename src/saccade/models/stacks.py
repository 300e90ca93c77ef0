"""Stacks: the order in which layers are applied.

The layers belong to the encoder or decoder, which passes them to its stack; so a weight is called `encoder.layers.3.…`
with every stack.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Protocol

from torch import nn

from saccade.config import Slot
from saccade.parts.norms import Norm
from saccade.places import DecoderState, Memory, Places
from saccade.shapes import States


class Layer(Protocol):
    """The contract of a layer: that of a mixer, plus `final_norm`, which builds the norm at the end of a stack of such
    layers (the identity if they need none)."""

    def final_norm(self) -> Norm: ...
    def start(self, memory: Memory | None, rows: int) -> DecoderState: ...
    def __call__(self, x: States, places: Places, state: DecoderState) -> tuple[States, DecoderState]: ...


class Stack(Protocol):
    """The contract of a stack. `layer_count(depth)`: how many layers must be built for this depth. `start` and the call
    are those of a mixer, but the call returns the outputs of all layers, and the places, because it may change the
    sequence length."""

    def layer_count(self, depth: int) -> int: ...
    def start(self, layers: Sequence[Layer], memory: Memory | None, rows: int) -> DecoderState: ...
    def __call__(
        self, layers: Sequence[Layer], x: States, places: Places, state: DecoderState
    ) -> tuple[tuple[States, ...], Places, DecoderState]: ...


class PlainStack(nn.Module):
    """Each layer once, from the first to the last."""

    fused_options: ClassVar[set[str]] = set()

    def layer_count(self, depth: int) -> int:
        return depth

    def start(self, layers: Sequence[Layer], memory: Memory | None, rows: int) -> tuple[DecoderState, ...]:
        return tuple(layer.start(memory, rows) for layer in layers)

    def forward(
        self, layers: Sequence[Layer], x: States, places: Places, state: tuple[DecoderState, ...]
    ) -> tuple[tuple[States, ...], Places, tuple[DecoderState, ...]]:
        outputs, new_state = [], []
        for layer, layer_state in zip(layers, state, strict=True):
            x, new_layer_state = layer(x, places, layer_state)
            outputs.append(x)
            new_state.append(new_layer_state)
        return tuple(outputs), places, tuple(new_state)


STACKS: dict[str, Callable[..., Stack]] = {"plain": PlainStack}

StackSlot = Annotated[Callable[..., Stack], Slot(STACKS)]
