"""Embeddings: what is read becomes vectors and places. Turned round, a table serves a tied head."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from saccade.config import Count, Slot
from saccade.errors import BuildError
from saccade.parts.inits import linear, table
from saccade.places import Places
from saccade.shapes import Float, Ids, Int, Keep, States


class Embedding(Protocol):
    """The contract: values and what of them is real → vectors and places; `turned` for a tied head.

    Of its wiring one is not zero: `vocabulary` where ids are read, `frames` (numbers a frame) where numbers are."""

    def __call__(self, values: Tensor, keep: Keep | None, start: Tensor | None = None) -> tuple[States, Places]: ...

    def tied_weight(self, hidden: Float[Tensor, "*n D"]) -> tuple[Float[Tensor, "*n d"], Float[Tensor, "V d"]]: ...


class TokenEmbedding(nn.Module):
    """A table of one vector a token, times √D (Vaswani et al. 2017, §3.4)."""

    def __init__(self, vocabulary: int, dim: int, *, scaled: bool = True):
        super().__init__()
        if not vocabulary:
            raise BuildError('"tokens" reads ids, but this data is a series of numbers; use "series"')
        self.table = table(vocabulary, dim)
        self.scale = math.sqrt(dim) if scaled else 1.0

    def forward(self, ids: Ids, keep: Keep | None, start: Int[Tensor, "B"] | None = None) -> tuple[States, Places]:
        return self.table(ids) * self.scale, Places.of(ids, keep, start)

    def tied_weight(self, hidden: Float[Tensor, "*n D"]) -> tuple[Float[Tensor, "*n D"], Float[Tensor, "V D"]]:
        return hidden, self.table.weight


class SeriesEmbedding(nn.Module):
    """Frames of numbers: x = W [f₋ₖ … f … f₊ₖ] + b, where `width` = 2k + 1 neighbouring frames are seen at each place.
    Beyond the ends there is zero."""

    def __init__(self, frames: int, dim: int, *, width: Count = 1):
        super().__init__()
        if not frames:
            raise BuildError('"series" reads frames of numbers, but this data is text; use "tokens"')
        if width % 2 == 0:
            raise BuildError(f"width = {width} has no middle; use an odd number")
        self.width = width
        self.projection = linear(frames * width, dim)

    def forward(
        self, values: Float[Tensor, "B T F"], keep: Keep | None, start: Int[Tensor, "B"] | None = None
    ) -> tuple[States, Places]:
        values = values.to(self.projection.weight.dtype)
        if keep is not None:
            values = values * keep[..., None]
        reach = self.width // 2
        seen = F.pad(values, (0, 0, reach, reach)).unfold(1, self.width, 1).flatten(2)
        return self.projection(seen), Places.of(values, keep, start)

    def tied_weight(self, hidden: Float[Tensor, "*n D"]) -> tuple[Tensor, Tensor]:
        raise BuildError('"series" has no table that a head could share; set model.head = "linear"')


EMBEDDINGS: dict[str, Callable[..., nn.Module]] = {"tokens": TokenEmbedding, "series": SeriesEmbedding}

EmbeddingSlot = Annotated[Callable[..., nn.Module], Slot(EMBEDDINGS)]
