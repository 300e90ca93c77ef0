"""Mixers: layers in which positions exchange information, such as attention. (x, places, state) → (y, state)."""

from collections.abc import Callable
from typing import Annotated, Protocol

from saccade.config import Slot
from saccade.parts.mixers.attention import MultiHead
from saccade.parts.mixers.unprojected import Unprojected
from saccade.places import DecoderState, Memory, Places
from saccade.shapes import States


class Mixer(Protocol):
    """The contract of a mixer.

    `start(memory, rows)` returns the state before the first position: with a memory the mixer attends to the memory,
    with None to `x` itself. A call processes any number of further positions. A whole sequence is one call with a fresh
    state, so training and step-by-step decoding run the same code.
    """

    def start(self, memory: Memory | None, rows: int) -> DecoderState: ...
    def __call__(self, x: States, places: Places, state: DecoderState) -> tuple[States, DecoderState]: ...


MIXERS: dict[str, Callable[..., Mixer]] = {"multi_head": MultiHead, "unprojected": Unprojected}

MixerSlot = Annotated[Callable[..., Mixer], Slot(MIXERS)]
