"""Embeddings: input values (token ids or frames) → vectors and their Places."""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar, Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from saccade.config import Count, Slot
from saccade.errors import BuildError
from saccade.inputs import Frames, Input, Tokens
from saccade.parts.inits import embedding_table, linear_layer
from saccade.places import Places, Progress
from saccade.shapes import Float, Ids, Keep, States


class Embedding(Protocol):
    """The contract of an embedding: (values, padding mask, progress of each row) → (vectors, places).

    It is built for an `input` and refuses what it cannot embed. `tied_weight(hidden)` returns (hidden, weight) for a
    head that shares the table: logits = hidden @ weight.T.
    """

    def __call__(
        self, values: Tensor, keep: Keep | None, progress: Progress | None = None
    ) -> tuple[States, Places]: ...

    def tied_weight(self, hidden: Float[Tensor, "*n D"]) -> tuple[Float[Tensor, "*n d"], Float[Tensor, "V d"]]: ...


class TokenEmbedding(nn.Module):
    """x = √D · E[id], one learned vector per token (Vaswani et al. 2017, §3.4); `scaled = false` leaves out √D."""

    fused_options: ClassVar[set[str]] = {"scaled"}

    def __init__(self, input: Input, dim: int, *, scaled: bool = True):  # noqa: A002 - the name of the wiring
        super().__init__()
        if not isinstance(input, Tokens):
            raise BuildError('"tokens" is for text, but the data has numeric series; use "series"')
        self.table = embedding_table(input.vocabulary, dim)
        self.scale = math.sqrt(dim) if scaled else 1.0

    def forward(self, ids: Ids, keep: Keep | None, progress: Progress | None = None) -> tuple[States, Places]:
        return self.table(ids) * self.scale, Places.of(ids, keep, progress)

    def tied_weight(self, hidden: Float[Tensor, "*n D"]) -> tuple[Float[Tensor, "*n D"], Float[Tensor, "V D"]]:
        return hidden, self.table.weight


class SeriesEmbedding(nn.Module):
    """x_t = W [f_{t−k} … f_{t+k}] + b for frames [B T F]: a linear map (a convolution over time) of
    `width` = 2k + 1 neighboring frames. Padding and frames beyond the ends count as zero."""

    def __init__(self, input: Input, dim: int, *, width: Count = 1):  # noqa: A002 - the name of the wiring
        super().__init__()
        if not isinstance(input, Frames):
            raise BuildError('"series" is for numeric series, but the data is text; use "tokens"')
        if width % 2 == 0:
            raise BuildError(f"must be odd, so that each window has a middle frame, got {width}", ("width",))
        self.width = width
        self.projection = linear_layer(input.width * width, dim)

    def forward(
        self, values: Float[Tensor, "B T F"], keep: Keep | None, progress: Progress | None = None
    ) -> tuple[States, Places]:
        values = values.to(self.projection.weight.dtype)
        if keep is not None:
            values = values * keep[..., None]
        reach = self.width // 2
        windows = F.pad(values, (0, 0, reach, reach)).unfold(1, self.width, 1).flatten(2)
        return self.projection(windows), Places.of(values, keep, progress)

    def tied_weight(self, hidden: Float[Tensor, "*n D"]) -> tuple[Tensor, Tensor]:
        raise BuildError('"series" has no embedding table that a head could share; set model.head = "linear"')


EMBEDDINGS: dict[str, Callable[..., Embedding]] = {"tokens": TokenEmbedding, "series": SeriesEmbedding}

EmbeddingSlot = Annotated[Callable[..., Embedding], Slot(EMBEDDINGS)]
