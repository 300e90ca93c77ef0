"""Attention without projections of queries, keys and values, as in the first attentional recurrent decoders. Its only
weights are those of the score and of coverage."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.config import NotNegative, build
from saccade.errors import BuildError
from saccade.notes import RecordingModule
from saccade.parts.dropout import Dropout
from saccade.parts.mixers.attend import Keys, KeyValueCache, MemoryKeys, attend, check_cross_attention, cross_attend
from saccade.parts.normalizers import Normalizer, NormalizerSlot, Softmax
from saccade.parts.positions import NO_POSITION, Position
from saccade.parts.scores import AttentionScore, ScaledDot, ScoreSlot
from saccade.places import Memory, PerSentence, Places, attention_mask, map_state
from saccade.shapes import Float, Heads, Prepared, States


@dataclass(frozen=True)
class CoverageState:
    """The keys and values of a memory, and the coverage of each hypothesis: the sum of its attention weights so far."""

    memory: PerSentence
    so_far: Float[Tensor, "B 1 S"]


class Unprojected(RecordingModule):
    """y = Σ normalizer(score(x, z)) · z with one head (Bahdanau, Cho & Bengio 2015; Luong, Pham & Manning 2015).
    Without a memory and with a dot-product score it is self-attention without parameters.

    `cross` tells whether the mixer fills a slot for cross-attention; only there is coverage possible.

    `coverage`: the sum of all earlier attention weights enters the score (Tu et al. 2016; See, Liu & Manning 2017). It
    is multiplied by the vector `coverage_weight` and added to the prepared keys, inside the tanh of an additive score.
    `coverage_loss` is the weight of the loss Σ min(weight, coverage) of See et al., which penalizes attending to the
    same token twice.
    """

    attends = True

    def __init__(
        self,
        dim: int,
        causal: bool = False,
        dropout: float = 0.0,
        cross: bool = True,
        position: Position = NO_POSITION,
        *,
        score: ScoreSlot = ScaledDot,
        normalizer: NormalizerSlot = Softmax,
        coverage: bool = False,
        coverage_loss: NotNegative = 0.0,
    ):
        super().__init__()
        if coverage and not cross:
            raise BuildError("is only for cross-attention; leave it out in self-attention", ("coverage",))
        if coverage_loss and not coverage:
            raise BuildError("needs coverage = true; set it, or leave coverage_loss out", ("coverage_loss",))
        self.causal, self.width, self.coverage_loss = causal, dim, coverage_loss
        self.score: AttentionScore = build(score, "score", heads=1, width=dim)
        self.normalizer: Normalizer = build(normalizer, "normalizer")
        self.coverage_weight = nn.Parameter(0.1 * torch.randn(self.score.prepared)) if coverage else None
        self.dropout = Dropout(dropout)
        self.empty: Tensor
        # on the device of the model and of its type, which a mixer without weights could not know otherwise
        self.register_buffer("empty", torch.empty(0), persistent=False)
        self.position = position.for_attention(1, dim, causal)
        self.out = nn.Identity()  # every mixer has its output projection under this name; here there is none

    def start(self, memory: Memory | None, rows: int) -> KeyValueCache | PerSentence | CoverageState:
        """Without a memory: an empty cache. With a memory: its keys and states, one row per sentence."""
        if memory is None:
            empty = self.empty.new_zeros(rows, 1, 0, self.width)
            places = Places.of(empty[:, 0], None)
            return KeyValueCache(*self._keys_and_values(empty, places), places)
        check_cross_attention(self)
        states = memory.states[:, None]
        keys = PerSentence(MemoryKeys(*self._keys_and_values(states, memory.places), memory.places))
        return keys if self.coverage_weight is None else CoverageState(keys, states.new_zeros(rows, 1, states.shape[2]))

    def forward(
        self, x: States, places: Places, state: KeyValueCache | PerSentence | CoverageState
    ) -> tuple[States, KeyValueCache | PerSentence | CoverageState]:
        if isinstance(state, CoverageState):
            return self._step_by_step(x, places, state)
        head = x[:, None]
        query = self.score.query(self.position.turn(head, places, "query"))
        if isinstance(state, PerSentence):
            return cross_attend(self, query, places, state.value)[:, 0], state
        cache = state.extended(*self._keys_and_values(head, places), places)
        return attend(self, query, cache.key, cache.value, places, cache.places)[:, 0], cache

    def _keys_and_values(self, head: Heads, places: Places) -> tuple[Prepared, Heads]:
        key = self.position.turn(head, places, "key")
        return self.score.key(key), self.position.turn(head, places, "value")

    def _step_by_step(self, x: States, places: Places, state: CoverageState) -> tuple[States, CoverageState]:
        """Attention with coverage. The weights of each step change the scores of the next, so steps cannot be
        batched."""
        # hypotheses with different coverage have different keys, so the memory is copied for the beam
        memory = _repeated(state.memory.value, x.shape[0] // state.memory.value.key.shape[0])
        query, so_far, outputs = self.score.query(x[:, None]), state.so_far, []
        for t in range(x.shape[1]):
            y, weights = self._attend_with_coverage(query[:, :, t : t + 1], memory, places.one(t), so_far)
            so_far = so_far + weights[:, :, 0] * places.keep[:, None, t : t + 1]
            outputs.append(y)
        return torch.cat(outputs, 2)[:, 0], CoverageState(state.memory, so_far)

    def _attend_with_coverage(
        self, query: Prepared, memory: MemoryKeys, queries: Places, so_far: Tensor
    ) -> tuple[Heads, Tensor]:
        """One step: the attention output and its weights."""
        assert self.coverage_weight is not None
        key: Keys = memory.key + so_far[..., None] * self.coverage_weight
        mask = attention_mask(queries, memory.places, self.causal)
        weights = self.normalizer(self.score.join(query, key), mask, queries)
        self.note("weights", weights, queries)
        if self.coverage_loss and self.has_listener("loss"):
            self.note("loss", self.coverage_loss * torch.minimum(weights, so_far[:, :, None]), queries)
        return self.dropout(weights) @ memory.value, weights


def _repeated(memory: MemoryKeys, beam: int) -> MemoryKeys:
    """A memory with one row per hypothesis instead of one per sentence."""
    if beam == 1:
        return memory
    return map_state(memory, lambda rows, path: rows.repeat_interleave(beam, 0), lambda entry, path: entry)
