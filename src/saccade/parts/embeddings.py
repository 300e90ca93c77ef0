"""Embeddings: what is read becomes vectors and places. Turned round, a table serves a tied head."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

from torch import Tensor, nn

from saccade.config import Slot
from saccade.parts.inits import table
from saccade.places import Places
from saccade.shapes import Float, Ids, Int, Keep, States


class Embedding(Protocol):
    """The contract: values and what of them is real → vectors and places; `turned` for a tied head."""

    def __call__(self, values: Tensor, keep: Keep | None, start: Tensor | None = None) -> tuple[States, Places]: ...

    def turned(self, hidden: Float[Tensor, "*n D"]) -> tuple[Float[Tensor, "*n d"], Float[Tensor, "V d"]]: ...


class Words(nn.Module):
    """A table of one vector a token, times √D (Vaswani et al. 2017, §3.4)."""

    def __init__(self, vocabulary: int, dim: int, *, scaled: bool = True):
        super().__init__()
        self.table = table(vocabulary, dim)
        self.scale = math.sqrt(dim) if scaled else 1.0

    def forward(self, ids: Ids, keep: Keep | None, start: Int[Tensor, "B"] | None = None) -> tuple[States, Places]:
        return self.table(ids) * self.scale, Places.of(ids, keep, start)

    def turned(self, hidden: Float[Tensor, "*n D"]) -> tuple[Float[Tensor, "*n D"], Float[Tensor, "V D"]]:
        return hidden, self.table.weight


EMBEDDINGS: dict[str, Callable[..., nn.Module]] = {"words": Words}

EmbeddingSlot = Annotated[Callable[..., nn.Module], Slot(EMBEDDINGS)]
