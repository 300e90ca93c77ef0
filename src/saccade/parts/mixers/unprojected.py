"""Attention straight at the states, as recurrent decoders first had it: no projections but those of the score."""

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from saccade.config import NotNegative, build
from saccade.errors import BuildError
from saccade.notes import Part
from saccade.parts.dropout import Dropout
from saccade.parts.mixers.attend import Keys, KeyValueCache, MemoryKeys, attend, cross_attend
from saccade.parts.normalizers import Normalizer, NormalizerSlot, Softmax
from saccade.parts.scores import ScaledDot, Score, ScoreSlot
from saccade.places import Memory, PerSentence, Places, attention_mask
from saccade.shapes import Float, Heads, Prepared, States


@dataclass(frozen=True)
class CoverageState:
    """A memory, and how much each hypothesis has looked at each of its places so far."""

    memory: PerSentence
    so_far: Float[Tensor, "B 1 S"]


class Unprojected(Part):
    """y = Σ normalizer(score(x, z)) · z with one head: the alignment of Bahdanau, Cho & Bengio (2015) and of Luong,
    Pham & Manning (2015). With a dot score and no memory it is self-attention without any parameters.

    `coverage`: the sum of all earlier weights enters the score (Tu et al. 2016; See, Liu & Manning 2017): times
    `coverage_weight` it is added to the prepared keys, inside the tanh of an additive score. `coverage_loss` is the
    weight of the loss Σ min(weight, coverage) of See et al., which penalizes attending to the same token twice.
    """

    attends = True

    def __init__(
        self,
        dim: int,
        causal: bool = False,
        dropout: float = 0.0,
        cross: bool = True,
        *,
        score: ScoreSlot = ScaledDot,
        normalizer: NormalizerSlot = Softmax,
        coverage: bool = False,
        coverage_loss: NotNegative = 0.0,
    ):
        super().__init__()
        if coverage and not cross:
            raise BuildError("counts how often a memory was looked at, and here there is none", ("coverage",))
        if coverage_loss and not coverage:
            raise BuildError("needs coverage = true", ("coverage_loss",))
        self.causal, self.width, self.coverage_loss = causal, dim, coverage_loss
        self.score = cast(Score, build(score, "score", heads=1, width=dim))
        self.normalizer = cast(Normalizer, build(normalizer, "normalizer"))
        self.coverage_weight = nn.Parameter(0.1 * torch.randn(self.score.prepared)) if coverage else None
        self.dropout = Dropout(dropout)
        self.out = nn.Identity()

    def start(self, memory: Memory | None, rows: int) -> KeyValueCache | PerSentence | CoverageState:
        """No memory: an empty cache. A memory: its keys and its states, one row a sentence."""
        if memory is None:
            empty = next(self.parameters(), torch.empty(0)).new_zeros(rows, 1, 0, self.width)
            return KeyValueCache(self.score.key(empty), empty)
        states = memory.states[:, None]
        fixed = PerSentence(MemoryKeys(self.score.key(states), states, memory.places))
        return (
            fixed if self.coverage_weight is None else CoverageState(fixed, states.new_zeros(rows, 1, states.shape[2]))
        )

    def forward(
        self, x: States, places: Places, state: KeyValueCache | PerSentence | CoverageState
    ) -> tuple[States, KeyValueCache | PerSentence | CoverageState]:
        if isinstance(state, CoverageState):
            return self._step_by_step(x, places, state)
        query = self.score.query(x[:, None])
        if isinstance(state, PerSentence):
            return cross_attend(self, query, places, state.value)[:, 0], state
        cache = state.extended(self.score.key(x[:, None]), x[:, None])
        return attend(self, query, cache.key, cache.value, places, places.last(cache.key.shape[2]))[:, 0], cache

    def _step_by_step(self, x: States, places: Places, state: CoverageState) -> tuple[States, CoverageState]:
        """What was covered at one step is known at the next, so there is no other way."""
        memory: MemoryKeys = state.memory.value
        beam = x.shape[0] // memory.key.shape[0]
        memory = MemoryKeys(_each(memory.key, beam), _each(memory.value, beam), _each_place(memory.places, beam))
        query, so_far, found = self.score.query(x[:, None]), state.so_far, []
        for t in range(x.shape[1]):
            y, weights = self._covering(query[:, :, t : t + 1], memory, places.one(t), so_far)
            so_far = so_far + weights[:, :, 0] * places.keep[:, None, t : t + 1]
            found.append(y)
        return torch.cat(found, 2)[:, 0], CoverageState(state.memory, so_far)

    def _covering(self, query: Prepared, memory: MemoryKeys, here: Places, so_far: Tensor) -> tuple[Heads, Tensor]:
        assert self.coverage_weight is not None
        key: Keys = memory.key + so_far[..., None] * self.coverage_weight
        weights = self.normalizer(self.score.join(query, key), attention_mask(here, memory.places, self.causal), here)
        self.note("weights", weights, here)
        if self.coverage_loss and self.has_listener("loss"):
            self.note("loss", self.coverage_loss * torch.minimum(weights, so_far[:, :, None]), here)
        return self.dropout(weights) @ memory.value, weights


def _each(rows: Tensor, beam: int) -> Tensor:
    """Hypotheses that have looked at different places have different keys."""
    return rows if beam == 1 else rows.repeat_interleave(beam, 0)


def _each_place(places: Places, beam: int) -> Places:
    return places if beam == 1 else replace(places, keep=_each(places.keep, beam), at=_each(places.at, beam))
