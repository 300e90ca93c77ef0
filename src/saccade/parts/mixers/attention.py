"""Multi-head attention: for itself, for the past only, or for a memory (Vaswani et al. 2017, §3.2)."""

from typing import cast

from saccade.config import Count, Natural, build
from saccade.errors import BuildError
from saccade.notes import Part
from saccade.parts.dropout import Dropout
from saccade.parts.inits import linear
from saccade.parts.mixers.attend import KeyValueCache, MemoryKeys, attend, cross_attend
from saccade.parts.normalizers import Normalizer, NormalizerSlot, Softmax
from saccade.parts.scores import ScaledDot, Score, ScoreSlot
from saccade.places import Memory, PerSentence, Places
from saccade.shapes import Heads, Prepared, States


class MultiHead(Part):
    """y = W_o [head₁ … head_H], headᵢ = normalizer(score(W_q x, W_k z)) · W_v z.

    Without a memory z is x (with all that came before, if `causal`). Queries and keys have `key_width` numbers a head
    and values `value_width`: 0 means the width divided by the heads.

        attention = MultiHead(512, heads=8)
        y, state = attention(x, Places.of(x, keep), attention.start(None, rows))
    """

    attends = True

    def __init__(
        self,
        dim: int,
        causal: bool = False,
        dropout: float = 0.0,
        *,
        heads: Count = 8,
        key_width: Natural = 0,
        value_width: Natural = 0,
        score: ScoreSlot = ScaledDot,
        normalizer: NormalizerSlot = Softmax,
    ):
        super().__init__()
        if dim % heads and not (key_width and value_width):
            raise BuildError(f"heads = {heads} does not divide the width {dim}; or set key_width and value_width")
        self.heads, self.causal, self.width = heads, causal, dim
        keys, values = key_width or dim // heads, value_width or dim // heads
        self.query, self.key = linear(dim, heads * keys), linear(dim, heads * keys)
        self.value, self.out = linear(dim, heads * values), linear(heads * values, dim)
        self.score = cast(Score, build(score, "score", heads=heads, width=keys))
        self.normalizer = cast(Normalizer, build(normalizer, "normalizer"))
        self.dropout = Dropout(dropout)

    def start(self, memory: Memory | None, rows: int) -> KeyValueCache | PerSentence:
        """No memory: an empty cache. A memory: its keys and values, one row a sentence."""
        if memory is not None:
            return PerSentence(MemoryKeys(*self._keys(memory.states), memory.places))
        empty = self.key.weight.new_zeros(rows, 0, self.width)
        return KeyValueCache(*self._keys(empty))

    def forward(
        self, x: States, places: Places, state: KeyValueCache | PerSentence
    ) -> tuple[States, KeyValueCache | PerSentence]:
        query = self.score.query(self._split(self.query(x)))
        if isinstance(state, PerSentence):
            return self._finish(cross_attend(self, query, places, state.value)), state
        cache = state.extended(*self._keys(x))
        found = attend(self, query, cache.key, cache.value, places, places.last(cache.key.shape[2]))
        return self._finish(found), cache

    def _split(self, x: States) -> Heads:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _keys(self, x: States) -> tuple[Prepared, Heads]:
        return self.score.key(self._split(self.key(x))), self._split(self.value(x))

    def _finish(self, heads: Heads) -> States:
        return self.out(heads.transpose(1, 2).flatten(2))
