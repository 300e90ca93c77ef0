"""Multi-head attention: for itself, for the past only, or for a memory (Vaswani et al. 2017, §3.2)."""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import Count, build
from saccade.errors import Refusal
from saccade.notes import Part
from saccade.parts.dropout import Dropout
from saccade.parts.inits import linear
from saccade.parts.picks import Pick, PickSlot, Soft
from saccade.parts.scores import ScaledDot, Score, ScoreSlot
from saccade.places import Fixed, Memory, Places, may_look
from saccade.shapes import Float, Heads, States


@dataclass(frozen=True)
class Cache:
    """Keys and values so far. It grows with us, so it needs no places."""

    key: Float[Tensor, "B H S K"]
    value: Float[Tensor, "B H S K"]


@dataclass(frozen=True)
class Remembered:
    """Keys and values of a memory, projected once."""

    key: Float[Tensor, "B H S K"]
    value: Float[Tensor, "B H S K"]
    places: Places


class MultiHead(Part):
    """y = W_o [head₁ … head_H], headᵢ = pick(score(W_q x, W_k z)) · W_v z.

    Without a memory z is x (with all that came before, if `causal`). A dot score with the soft pick runs on torch's
    fused kernel, unless someone listens for weights or attention dropout is drawn: then the same sum is written out.

        attention = MultiHead(512, heads=8)
        y, state = attention(x, Places.of(x, keep), attention.start(None, rows))
    """

    def __init__(
        self,
        dim: int,
        causal: bool = False,
        dropout: float = 0.0,
        *,
        heads: Count = 8,
        score: ScoreSlot = ScaledDot,
        pick: PickSlot = Soft,
    ):
        super().__init__()
        if dim % heads:
            raise Refusal(f"heads = {heads} does not divide the width {dim}")
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (linear(dim, dim) for _ in range(4))
        self.score = cast(Score, build(score, "score"))
        self.pick = cast(Pick, build(pick, "pick"))
        self.dropout = Dropout(dropout)

    def start(self, memory: Memory | None, rows: int) -> Cache | Fixed:
        """No memory: an empty cache. A memory: its keys and values, one row a sentence."""
        if memory is not None:
            return Fixed(Remembered(*self._keys(memory.states), memory.places))
        empty = self.key.weight.new_zeros(rows, self.heads, 0, self.key.out_features // self.heads)
        return Cache(empty, empty)

    def forward(self, x: States, places: Places, state: Cache | Fixed) -> tuple[States, Cache | Fixed]:
        query = self.score.query(self._split(self.query(x)))
        if isinstance(state, Fixed):
            return self._finish(self._look_at_memory(query, places, state.value)), state
        fresh = state.key.shape[2] == 0
        key, value = self._keys(x)
        if not fresh:
            key, value = torch.cat([state.key, key], 2), torch.cat([state.value, value], 2)
        return self._finish(self._look(query, key, value, places, places.back(key.shape[2]))), Cache(key, value)

    def _split(self, x: States) -> Heads:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _keys(self, x: States) -> tuple[Heads, Heads]:
        return self.score.key(self._split(self.key(x))), self._split(self.value(x))

    def _finish(self, heads: Heads) -> States:
        return self.out(heads.transpose(1, 2).flatten(2))

    def _look_at_memory(self, query: Heads, places: Places, memory: Remembered) -> Heads:
        """The hypotheses of a sentence are more queries of its one row: a memory is never copied for a beam."""
        sentences, steps = memory.key.shape[0], query.shape[2]
        beam = query.shape[0] // sentences
        folded = query.unflatten(0, (sentences, beam)).transpose(1, 2).flatten(2, 3)
        found = self._look(folded, memory.key, memory.value, places, memory.places)
        return found.unflatten(2, (beam, steps)).transpose(1, 2).flatten(0, 1)

    def _look(self, query: Heads, key: Tensor, value: Tensor, queries: Places, keys: Places) -> Heads:
        drops = self.training and self.dropout.threshold > 0
        if self.score.dot and self.pick.soft and not drops and not self.asked("weights"):
            return self._fused(query, key, value, queries, keys)
        weights = self.pick(self.score.join(query, key), may_look(queries, keys, self.causal))
        self.note("weights", weights, queries)
        return self.dropout(weights) @ value

    def _fused(self, query: Heads, key: Tensor, value: Tensor, queries: Places, keys: Places) -> Heads:
        # the kernel's own causal mask is aligned top-left: right for a whole pass only, and there it also
        # keeps right padding out of every real row
        whole = self.causal and keys is queries and query.shape[2] > 1
        keep = None if whole else may_look(queries, keys, self.causal)
        return F.scaled_dot_product_attention(query, key, value, keep, is_causal=whole, scale=1.0)
