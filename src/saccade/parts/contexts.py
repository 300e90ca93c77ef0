"""Contexts: the source information that a recurrent decoder receives at each step.

A context has the methods of a mixer, plus `attends` and `width`. Attention (`unprojected`, `multi_head`) is one kind of
context; the others are those of the models that came before attention.
"""

from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Slot
from saccade.errors import SaccadeError
from saccade.parts.mixers import MultiHead, Unprojected
from saccade.places import DecoderState, Memory, PerSentence, Places
from saccade.shapes import Float, States


class Context(Protocol):
    """The contract of a context.

    `attends`: the context depends on the query `x`, so the decoder must compute it anew at every step.
    `width`: the size C of the context, which may be 0.
    """

    @property
    def attends(self) -> bool: ...
    @property
    def width(self) -> int: ...
    def start(self, memory: Memory | None, rows: int) -> DecoderState: ...
    def __call__(
        self, x: States, places: Places, state: DecoderState
    ) -> tuple[Float[Tensor, "B T C"], DecoderState]: ...


class AtStart(nn.Module):
    """No context [B T 0]: the source reaches the decoder only through its initial state (Sutskever, Vinyals & Le
    2014)."""

    attends = False
    width = 0

    def start(self, memory: Memory | None, rows: int) -> None:
        return None

    def forward(self, x: States, places: Places, state: None) -> tuple[Float[Tensor, "B T 0"], None]:
        return x[..., :0], None


class EveryStep(nn.Module):
    """The source's summary vector [B D], the same at every step (Cho et al. 2014)."""

    attends = False

    def __init__(self, dim: int):
        super().__init__()
        self.width = dim

    def start(self, memory: Memory | None, rows: int) -> PerSentence:
        if memory is None or memory.summary is None:
            raise SaccadeError('model.decoder.cross: the context "every_step" needs the summary of an encoder')
        return PerSentence(memory.summary)

    def forward(self, x: States, places: Places, state: PerSentence) -> tuple[States, PerSentence]:
        summary: Tensor = state.value
        beam = x.shape[0] // summary.shape[0]
        per_hypothesis = summary if beam == 1 else torch.repeat_interleave(summary, beam, 0)
        return per_hypothesis[:, None].expand(-1, x.shape[1], -1), state


CONTEXTS: dict[str, Callable[..., Context]] = {
    "unprojected": Unprojected,
    "multi_head": MultiHead,
    "every_step": EveryStep,
    "at_start": AtStart,
}

ContextSlot = Annotated[Callable[..., Context], Slot(CONTEXTS)]
