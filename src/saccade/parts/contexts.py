"""Contexts: what a recurrent decoder is told of the source at each step. The verbs of a mixer, and `width`: how many
numbers it tells. An attention is one of them; the others are how it was done before there was attention."""

from collections.abc import Callable
from typing import Annotated, Any, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Slot
from saccade.parts.mixers import MultiHead, Unprojected
from saccade.places import Memory, PerSentence, Places
from saccade.shapes import Float, States


class Context(Protocol):
    """The contract of a context. `looks`: what it tells depends on who asks, so it must be asked at every step."""

    attends: bool
    width: int

    def start(self, memory: Memory | None, rows: int) -> Any: ...
    def __call__(self, x: States, places: Places, state: Any) -> tuple[Float[Tensor, "B T C"], Any]: ...


class AtStart(nn.Module):
    """Nothing: the decoder starts from the source's summary and is left alone (Sutskever, Vinyals & Le 2014)."""

    attends = False
    width = 0

    def start(self, memory: Memory | None, rows: int) -> None:
        return None

    def forward(self, x: States, places: Places, state: None) -> tuple[Float[Tensor, "B T 0"], None]:
        return x[..., :0], None


class EveryStep(nn.Module):
    """The same summary of the source at every step (Cho et al. 2014)."""

    attends = False

    def __init__(self, dim: int):
        super().__init__()
        self.width = dim

    def start(self, memory: Memory, rows: int) -> PerSentence:
        return PerSentence(memory.summary)

    def forward(self, x: States, places: Places, state: PerSentence) -> tuple[States, PerSentence]:
        summary: Tensor = state.value
        beam = x.shape[0] // summary.shape[0]
        each = summary if beam == 1 else torch.repeat_interleave(summary, beam, 0)
        return each[:, None].expand(-1, x.shape[1], -1), state


CONTEXTS: dict[str, Callable[..., nn.Module]] = {
    "unprojected": Unprojected,
    "multi_head": MultiHead,
    "every_step": EveryStep,
    "at_start": AtStart,
}

ContextSlot = Annotated[Callable[..., nn.Module], Slot(CONTEXTS)]
