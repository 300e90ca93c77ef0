"""Positions: position encodings added to the embeddings, so that attention can tell the order of tokens."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Count, Slot
from saccade.errors import SaccadeError
from saccade.parts.inits import embedding_table
from saccade.places import Places
from saccade.shapes import Float, Int, States


class Position(Protocol):
    """The contract of a position encoding. `longest`: the maximum sequence length, None if there is no limit."""

    @property
    def longest(self) -> int | None: ...
    def embed(self, x: States, places: Places) -> States: ...


def sinusoid(at: Int[Tensor, "*places"], dim: int) -> Float[Tensor, "*places {dim}"]:
    """[sin(at·ω₀) … sin(at·ωₙ), cos(at·ω₀) …] with ωᵢ = 10000^(−2i/dim): all sines, then all cosines, as in Marian."""
    half = (dim + 1) // 2
    # in double precision: at position 300 the angle in single precision is already off by 1e-5
    rates = torch.exp(torch.arange(half, device=at.device, dtype=torch.double) * (-math.log(10000.0) * 2 / dim))
    angles = at[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)[..., :dim].float()


class Sinusoidal(nn.Module):
    """x_t + [sin(t·ωᵢ); cos(t·ωᵢ)], ωᵢ = 10000^(−2i/D) (Vaswani et al. 2017, §3.5). It has no parameters and no maximum
    length. Sines fill the first half of the vector and cosines the second, as in Marian."""

    longest = None

    def __init__(self, dim: int):
        super().__init__()
        self.table: Tensor
        self.register_buffer("table", sinusoid(torch.arange(256), dim), persistent=False)

    def embed(self, x: States, places: Places) -> States:
        length = int(places.at.max()) + 1 if places.at.numel() else 0
        encodings = self.table  # read once: another thread may replace it by a shorter one
        if length > encodings.shape[0]:  # doubling keeps the number of rebuilds small
            with torch.inference_mode(False):  # training must be able to use the longer table, too
                self.table = encodings = sinusoid(torch.arange(2 * length, device=x.device), x.shape[-1])
        return x + encodings.to(x.dtype)[places.at]


class Learned(nn.Module):
    """x_t + P[t], one learned vector per position (Gehring et al. 2017). Sequences longer than `longest` are an
    error."""

    def __init__(self, dim: int, *, longest: Count = 512):
        super().__init__()
        self.longest = longest
        self.table = embedding_table(longest, dim)

    def embed(self, x: States, places: Places) -> States:
        last = int(places.at.max()) if places.at.numel() else 0
        if last >= self.longest:
            raise SaccadeError(
                f"a sequence of {last + 1} tokens is past the {self.longest} learned positions; split the text, or "
                "train with a larger model.encoder.position.longest and model.decoder.position.longest, or with "
                'position = "sinusoidal", which has no limit'
            )
        return x + self.table(places.at)


POSITIONS: dict[str, Callable[..., Position]] = {"sinusoidal": Sinusoidal, "learned": Learned}

PositionSlot = Annotated[Callable[..., Position], Slot(POSITIONS)]
