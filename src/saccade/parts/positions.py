"""Positions: how attention learns the order of tokens. A position encoding may add to the embeddings, turn queries and
keys, add a bias to the scores, or add to the output of attention."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.config import Count, Fraction, Positive, Slot
from saccade.errors import BuildError, SaccadeError
from saccade.parts.inits import embedding_table
from saccade.places import Places
from saccade.shapes import Float, Heads, Int, Prepared, Scores, States

Role = Literal["query", "key", "value"]


class Position(nn.Module):
    """The contract of a position encoding: four hooks, none of which does anything by default.

    The encoder or decoder calls `embed` on the embedded input. Its self-attentions call the others: `turn` on queries,
    keys and values before the score prepares them, `bias` for what is added to the scores of prepared queries, and
    `gather` for what is added to the output. `longest` is the maximum sequence length, None if there is no limit.
    """

    longest: int | None = None

    def embed(self, x: States, places: Places) -> States:
        return x

    def turn(self, x: Heads, places: Places, role: Role) -> Heads:
        return x

    def bias(self, query: Prepared, queries: Places, keys: Places) -> Scores | None:
        return None

    def gather(self, weights: Scores, queries: Places, keys: Places) -> Heads | None:
        return None

    def overrides(self, hook: str) -> bool:
        """Whether this encoding does anything in the hook of this name."""
        return getattr(type(self), hook) is not getattr(Position, hook)

    @property
    def is_for_attention(self) -> bool:
        return any(map(self.overrides, ("turn", "bias", "gather")))

    def for_attention(self, heads: int, width: int, causal: bool) -> "Position":
        """The encoding for a self-attention with these heads of this width. Each self-attention calls this when it is
        built, so weights per head can be made here. An encoding that only embeds is no concern of attention."""
        return self if self.is_for_attention else NO_POSITION


class NoPosition(Position):
    """Nothing: the model cannot tell the order of its input, unless attention is causal."""


NO_POSITION = NoPosition()


# ── added to the embeddings ───────────────────────────────────────────────────────────────────────


def angular_rates(width: int, base: float = 10000.0, device: torch.device | None = None) -> Float[Tensor, "n"]:
    """ωᵢ = base^(−2i/width) for i < width/2 (rounded up), in double precision: at position 300 an angle in single
    precision is already off by 1e-5."""
    half = (width + 1) // 2
    return torch.exp(torch.arange(half, device=device, dtype=torch.double) * (-math.log(base) * 2 / width))


def sinusoid(at: Int[Tensor, "*places"], dim: int) -> Float[Tensor, "*places {dim}"]:
    """[sin(at·ω₀) … sin(at·ωₙ), cos(at·ω₀) …] with ωᵢ = 10000^(−2i/dim): all sines, then all cosines, as in Marian."""
    angles = at[..., None] * angular_rates(dim, device=at.device)
    return torch.cat([angles.sin(), angles.cos()], -1)[..., :dim].float()


class AddedEncodings:
    """The fused form of an encoding whose `embed` adds a vector per position: these vectors."""

    def __init__(self, position: Position):
        self._position = position

    def __call__(self, count: int, like: Float[Tensor, "n D"]) -> Float[Tensor, "{count} D"]:
        """The vectors of the first `count` positions, with the width, type and device of `like`."""
        zeros = like.new_zeros(1, count, like.shape[1])
        return self._position.embed(zeros, Places.of(zeros, None))[0]


class Sinusoidal(Position):
    """x_t + [sin(t·ωᵢ); cos(t·ωᵢ)], ωᵢ = 10000^(−2i/D) (Vaswani et al. 2017, §3.5). It has no parameters and no maximum
    length. Sines fill the first half of the vector and cosines the second, as in Marian."""

    fused_options: ClassVar[set[str]] = set()

    def __init__(self, dim: int):
        super().__init__()
        self.table = GrowingTable(partial(sinusoid, dim=dim))

    def embed(self, x: States, places: Places) -> States:
        return x + self.table(places).to(x.dtype)

    def fused(self) -> AddedEncodings:
        return AddedEncodings(self)


class Learned(Position):
    """x_t + P[t], one learned vector per position (Gehring et al. 2017). Sequences longer than `longest` are an
    error."""

    fused_options: ClassVar[set[str]] = {"longest"}

    def __init__(self, dim: int, causal: bool = False, *, longest: Count = 512):
        super().__init__()
        # for the error message: only a decoder is causal
        self.key, self.longest = f"model.{'decoder' if causal else 'encoder'}.position", longest
        self.table = embedding_table(longest, dim)

    def embed(self, x: States, places: Places) -> States:
        if places.end > self.table.num_embeddings:  # `end` also bounds rows that have left the batch
            places = self._checked(places)
        return x + self.table(places.at)

    def _checked(self, places: Places) -> Places:
        """The places, with padding at position 0, after checking that no position is past the last one."""
        at = places.at.masked_fill(~places.keep, 0)
        length = int(at.max()) + 1
        if length > self.table.num_embeddings:
            raise SaccadeError(
                f"a sequence of {length} tokens is past the {self.longest} learned positions; split the text, or train "
                f'with a larger {self.key}.longest or with {self.key} = "sinusoidal", which has no limit'
            )
        return replace(places, at=at)

    def fused(self) -> AddedEncodings:
        return AddedEncodings(self)


# ── inside attention ──────────────────────────────────────────────────────────────────────────────


class Rotary(Position):
    """Turns each pair (xᵢ, xᵢ₊ₙ) of a query or key at position t by the angle t·ωᵢ, ωᵢ = base^(−i/n). The n pairs are
    the `share` of the head's width that is turned, the rest stays as it is. The dot product of two positions then
    depends on their distance only (Su et al. 2021, arXiv:2104.09864). The pairs are those of GPT-NeoX and Llama: one
    value from each half."""

    def __init__(self, *, base: Positive = 10000.0, share: Fraction = 1.0):
        super().__init__()
        self.base, self.share = base, share
        self.tables = nn.ModuleDict()  # of the cosines and sines, by the width that is turned

    def for_attention(self, heads: int, width: int, causal: bool) -> "Rotary":
        turned = self._turned_width(width)
        if not turned:
            raise BuildError(
                f'the position encoding "rotary" turns pairs of values, but a share of {self.share:g} of {width} '
                "values is less than one pair; use fewer heads or a larger position.share"
            )
        if str(turned) not in self.tables:
            self.tables[str(turned)] = GrowingTable(partial(_cosines_and_sines, width=turned, base=self.base))
        return self

    def _turned_width(self, width: int) -> int:
        return 2 * int(self.share * width / 2)

    def turn(self, x: Heads, places: Places, role: Role) -> Heads:
        if role == "value":
            return x
        turned = self._turned_width(x.shape[-1])
        cosines, sines = self.tables[str(turned)](places).to(x.dtype)[:, None].chunk(2, -1)
        first, second = x[..., :turned].chunk(2, -1)
        parts = [first * cosines - second * sines, second * cosines + first * sines]
        return torch.cat(parts if turned == x.shape[-1] else [*parts, x[..., turned:]], -1)


def _cosines_and_sines(at: Int[Tensor, "n"], width: int, base: float) -> Float[Tensor, "n {width}"]:
    angles = at[..., None] * angular_rates(width, base, at.device)
    return torch.cat([angles.cos(), angles.sin()], -1).float()


class T5Bias(Position):
    """score(i, j) += B[bucket(j − i), head]: one learned bias per head and bucket of distances, shared by all layers
    (Raffel et al. 2020, arXiv:1910.10683). Half of the buckets are for single distances, the others grow
    logarithmically up to `max_distance`, from which on all distances share the last bucket. Without a causal mask one
    half of the buckets is for keys before the query and the other for those after it."""

    def __init__(self, dim: int, causal: bool = False, *, buckets: Count = 32, max_distance: Count = 128):
        super().__init__()
        sides = 1 if causal else 2
        if buckets % (2 * sides) or max_distance <= buckets // (2 * sides):
            raise BuildError(
                f"needs a multiple of {2 * sides} buckets and a max_distance above {buckets // (2 * sides)}, got "
                f"buckets = {buckets} and max_distance = {max_distance}"
            )
        self.dim, self.max_distance, self.bucket_count = dim, max_distance, buckets
        self.table: nn.Parameter | None
        self.register_parameter("table", None)  # made for the first attention, which knows the number of heads
        self.bucket_of: Tensor
        distances = torch.arange(-max_distance, max_distance + 1)
        self.register_buffer("bucket_of", t5_bucket(distances, causal, buckets, max_distance), persistent=False)

    def for_attention(self, heads: int, width: int, causal: bool) -> "T5Bias":
        if self.table is None:
            self.table = nn.Parameter(torch.randn(self.bucket_count, heads) * self.dim**-0.5)
        if self.table.shape[1] != heads:
            raise BuildError(
                f'has {heads} heads, but the position encoding "t5" has a bias for each of {self.table.shape[1]} heads '
                "of another self-attention; give all the same number of heads"
            )
        return self

    def bias(self, query: Prepared, queries: Places, keys: Places) -> Scores:
        assert self.table is not None
        distances = keys.at[:, None] - queries.at[:, :, None]
        buckets = self.bucket_of[distances.clamp(-self.max_distance, self.max_distance) + self.max_distance]
        return F.embedding(buckets, self.table).permute(0, 3, 1, 2)


def t5_bucket(distances: Int[Tensor, "*n"], causal: bool, buckets: int, max_distance: int) -> Int[Tensor, "*n"]:
    """The bucket of each distance (key position − query position). With a causal mask the key is never later."""
    count = buckets if causal else buckets // 2
    steps = (-distances).clamp(min=0) if causal else distances.abs()
    exact = count // 2
    growth = torch.log(steps.clamp(min=1) / exact) / math.log(max_distance / exact)
    logarithmic = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
    bucket = torch.where(steps < exact, steps, logarithmic)
    return bucket if causal else bucket + count * (distances > 0)


class GrowingTable(nn.Module):
    """Rows that are a function of the position, such as sinusoids: computed once, and again for twice as many positions
    when a longer sequence comes."""

    def __init__(self, rows_of: Callable[[Int[Tensor, "n"]], Float[Tensor, "n W"]]):
        super().__init__()
        self.rows_of = rows_of
        self.rows: Tensor
        self.register_buffer("rows", rows_of(torch.arange(256)), persistent=False)

    def forward(self, places: Places) -> Float[Tensor, "B T W"]:
        rows = self.rows  # read once: another thread may replace it by a shorter one
        if places.end > rows.shape[0]:  # doubling keeps the number of rebuilds small
            with torch.inference_mode(False):  # training must be able to use the longer table, too
                # on the CPU, because not every GPU computes in double precision
                self.rows = rows = self.rows_of(torch.arange(2 * places.end)).to(rows.device)
        return rows[places.at]


POSITIONS: dict[str, Callable[..., Position]] = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "t5": T5Bias,
    "none": NoPosition,
}

PositionSlot = Annotated[Callable[..., Position], Slot(POSITIONS)]
