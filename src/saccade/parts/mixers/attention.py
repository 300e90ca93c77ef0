"""Multi-head attention (Vaswani et al. 2017, §3.2): self-attention, causal self-attention or cross-attention."""

import math
from typing import ClassVar

import torch

from saccade.config import Count, Natural, build
from saccade.errors import BuildError
from saccade.notes import RecordingModule
from saccade.parts.dropout import Dropout
from saccade.parts.fused_forms import are_linear, is_exactly
from saccade.parts.inits import linear_layer
from saccade.parts.mixers.attend import KeyValueCache, MemoryKeys, attend, check_cross_attention, cross_attend
from saccade.parts.mixers.projections import AttentionProjections
from saccade.parts.normalizers import Normalizer, NormalizerSlot, Softmax
from saccade.parts.positions import NO_POSITION, Position
from saccade.parts.scores import AttentionScore, Dot, ScaledDot, ScoreSlot
from saccade.places import Memory, PerSentence, Places
from saccade.shapes import Heads, Prepared, States


class MultiHead(RecordingModule):
    """y = W_o [head₁ … head_H], headᵢ = normalizer(score(W_q x, W_k z)) · W_v z.

    z is the memory in cross-attention and x in self-attention; with `causal` a position attends only to itself and
    earlier positions. `key_width` is the width of queries and keys per head and `value_width` that of values; 0 means
    dim / heads. `position` is the position encoding of the encoder or decoder, as far as attention depends on it.

        attention = MultiHead(512, heads=8)
        y, state = attention(x, Places.of(x, keep), attention.start(None, rows))
    """

    attends = True
    fused_options: ClassVar[set[str]] = {"heads", "key_width", "value_width", "score", "normalizer"}

    def __init__(
        self,
        dim: int,
        causal: bool = False,
        dropout: float = 0.0,
        position: Position = NO_POSITION,
        *,
        heads: Count = 8,
        key_width: Natural = 0,
        value_width: Natural = 0,
        score: ScoreSlot = ScaledDot,
        normalizer: NormalizerSlot = Softmax,
    ):
        super().__init__()
        if dim % heads and not (key_width and value_width):
            raise BuildError(
                f"heads = {heads} does not divide the width {dim}; use a divisor, or set key_width and value_width"
            )
        self.heads, self.causal, self.width = heads, causal, dim
        keys, values = key_width or dim // heads, value_width or dim // heads
        self.query, self.key = linear_layer(dim, heads * keys), linear_layer(dim, heads * keys)
        self.value, self.out = linear_layer(dim, heads * values), linear_layer(heads * values, dim)
        self.score: AttentionScore = build(score, "score", heads=heads, width=keys)
        self.normalizer: Normalizer = build(normalizer, "normalizer")
        self.dropout = Dropout(dropout)
        self.position = position.for_attention(heads, keys, causal)

    def start(self, memory: Memory | None, rows: int) -> KeyValueCache | PerSentence:
        """Without a memory: an empty cache. With a memory: its keys and values, one row per sentence."""
        if memory is not None:
            check_cross_attention(self)
            return PerSentence(MemoryKeys(*self._keys_and_values(memory.states, memory.places), memory.places))
        empty = self.key.weight.new_zeros(rows, 0, self.width)
        places = Places.of(empty, None)
        return KeyValueCache(*self._keys_and_values(empty, places), places)

    def forward(
        self, x: States, places: Places, state: KeyValueCache | PerSentence
    ) -> tuple[States, KeyValueCache | PerSentence]:
        query = self.score.query(self.position.turn(self._split_heads(self.query(x)), places, "query"))
        if isinstance(state, PerSentence):
            return self._project(cross_attend(self, query, places, state.value)), state
        cache = state.extended(*self._keys_and_values(x, places), places)
        return self._project(attend(self, query, cache.key, cache.value, places, cache.places)), cache

    def _split_heads(self, x: States) -> Heads:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _keys_and_values(self, x: States, places: Places) -> tuple[Prepared, Heads]:
        key = self.position.turn(self._split_heads(self.key(x)), places, "key")
        value = self.position.turn(self._split_heads(self.value(x)), places, "value")
        return self.score.key(key), value

    def fused(self) -> AttentionProjections | None:
        """The weights for torch's kernel: of dot-product scores with softmax, heads as wide for values as for keys, and
        no position encoding that needs the weights."""
        has_kernel = is_exactly(self.score, Dot, ScaledDot) and is_exactly(self.normalizer, Softmax)
        if not has_kernel or not are_linear(self.query, self.key, self.value, self.out):
            return None
        if self.key.out_features != self.value.out_features or self.position.overrides("gather"):
            return None
        width, positioned = self.query.out_features // self.heads, self.position.is_for_attention
        scale = 1 / math.sqrt(width) if type(self.score) is ScaledDot and not positioned else 1.0
        weight = torch.cat([self.query.weight * scale, self.key.weight, self.value.weight])
        bias = torch.cat([self.query.bias * scale, self.key.bias, self.value.bias])
        score = self.score if positioned else None
        return AttentionProjections(
            self.heads, width, weight, bias, self.out.weight, self.out.bias, self.position, score
        )

    def _project(self, heads: Heads) -> States:
        return self.out(heads.transpose(1, 2).flatten(2))
