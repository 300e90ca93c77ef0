"""Positions: how a model without recurrence knows order. `embed(x, places)` is added at the input."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from saccade.config import Count, Slot
from saccade.errors import SaccadeError
from saccade.parts.inits import table
from saccade.places import Places
from saccade.shapes import Float, Int, States


class Position(Protocol):
    """The contract of a position: any length works, or `longest` says how many places there are."""

    longest: int | None

    def embed(self, x: States, places: Places) -> States: ...


def sinusoid(at: Int[Tensor, "*places"], dim: int) -> Float[Tensor, "*places {dim}"]:
    """[sin(at·ω₀) … sin(at·ωₙ), cos(at·ω₀) …] with ωᵢ = 10000^(−2i/dim), in halves as Marian lays it out."""
    half = (dim + 1) // 2
    # in double precision: at place 300 a float's angle is off by 1e-5
    rates = torch.exp(torch.arange(half, device=at.device, dtype=torch.double) * (-math.log(10000.0) * 2 / dim))
    angles = at[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)[..., :dim].float()


class Sinusoidal(nn.Module):
    """Vaswani et al. 2017, §3.5: computed, not learned or saved, so it reaches any length."""

    longest = None

    def __init__(self, dim: int):
        super().__init__()
        self.table: Tensor
        self.register_buffer("table", sinusoid(torch.arange(256), dim), persistent=False)

    def embed(self, x: States, places: Places) -> States:
        longest = int(places.at.max()) + 1 if places.at.numel() else 0
        known = self.table  # read once: another thread may put a shorter one in its place
        if longest > known.shape[0]:  # grow by doubling: the next sentence is seldom the longest
            with torch.inference_mode(False):  # the longer table must serve training too
                self.table = known = sinusoid(torch.arange(2 * longest, device=x.device), x.shape[-1])
        return x + known.to(x.dtype)[places.at]


class Learned(nn.Module):
    """One learned vector a place (Gehring et al. 2017). It knows `longest` places and says so past its end."""

    def __init__(self, dim: int, *, longest: Count = 512):
        super().__init__()
        self.longest = longest
        self.table = table(longest, dim)

    def embed(self, x: States, places: Places) -> States:
        last = int(places.at.max()) if places.at.numel() else 0
        if last >= self.longest:
            raise SaccadeError(
                f"place {last} is past the {self.longest} learned positions; train with a larger "
                'position.longest, or with position = "sinusoidal", which has no end'
            )
        return x + self.table(places.at)


POSITIONS: dict[str, Callable[..., nn.Module]] = {"sinusoidal": Sinusoidal, "learned": Learned}

PositionSlot = Annotated[Callable[..., nn.Module], Slot(POSITIONS)]
