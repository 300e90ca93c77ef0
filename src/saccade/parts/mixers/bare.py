"""Attention straight at the states, as recurrent decoders first had it: no projections but those of the score."""

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from saccade.config import NotNegative, build
from saccade.errors import Refusal
from saccade.notes import Part
from saccade.parts.dropout import Dropout
from saccade.parts.mixers.looking import Cache, Keys, Remembered, look, look_at_memory
from saccade.parts.picks import Pick, PickSlot, Soft
from saccade.parts.scores import ScaledDot, Score, ScoreSlot
from saccade.places import Fixed, Memory, Places, may_look
from saccade.shapes import Float, Heads, Prepared, States


@dataclass(frozen=True)
class Covered:
    """A memory, and how much each hypothesis has looked at each of its places so far."""

    memory: Fixed
    so_far: Float[Tensor, "B 1 S"]


class Bare(Part):
    """y = Σ pick(score(x, z)) · z with one head: the alignment of Bahdanau, Cho & Bengio (2015) and of Luong, Pham &
    Manning (2015). With a dot score and no memory it is self-attention without any parameters.

    `coverage`: what was looked at so far enters the score (Tu et al. 2016; See, Liu & Manning 2017), as `cover` times
    the sum of all earlier weights, added to the prepared keys: inside the tanh of an additive score. `repeat_cost` adds
    the loss Σ min(weight, covered) of See et al., which makes looking twice expensive.
    """

    looks = True

    def __init__(
        self,
        dim: int,
        causal: bool = False,
        dropout: float = 0.0,
        remembers: bool = True,
        *,
        score: ScoreSlot = ScaledDot,
        pick: PickSlot = Soft,
        coverage: bool = False,
        repeat_cost: NotNegative = 0.0,
    ):
        super().__init__()
        if coverage and not remembers:
            raise Refusal("counts how often a memory was looked at, and here there is none", ("coverage",))
        if repeat_cost and not coverage:
            raise Refusal("needs coverage = true", ("repeat_cost",))
        self.causal, self.width, self.repeat_cost = causal, dim, repeat_cost
        self.score = cast(Score, build(score, "score", heads=1, width=dim))
        self.pick = cast(Pick, build(pick, "pick"))
        self.cover = nn.Parameter(0.1 * torch.randn(self.score.prepared)) if coverage else None
        self.dropout = Dropout(dropout)
        self.out = nn.Identity()

    def start(self, memory: Memory | None, rows: int) -> Cache | Fixed | Covered:
        """No memory: an empty cache. A memory: its keys and its states, one row a sentence."""
        if memory is None:
            empty = next(self.parameters(), torch.empty(0)).new_zeros(rows, 1, 0, self.width)
            return Cache(self.score.key(empty), empty)
        states = memory.states[:, None]
        fixed = Fixed(Remembered(self.score.key(states), states, memory.places))
        return fixed if self.cover is None else Covered(fixed, states.new_zeros(rows, 1, states.shape[2]))

    def forward(
        self, x: States, places: Places, state: Cache | Fixed | Covered
    ) -> tuple[States, Cache | Fixed | Covered]:
        if isinstance(state, Covered):
            return self._step_by_step(x, places, state)
        query = self.score.query(x[:, None])
        if isinstance(state, Fixed):
            return look_at_memory(self, query, places, state.value)[:, 0], state
        cache = state.grown(self.score.key(x[:, None]), x[:, None])
        return look(self, query, cache.key, cache.value, places, places.back(cache.key.shape[2]))[:, 0], cache

    def _step_by_step(self, x: States, places: Places, state: Covered) -> tuple[States, Covered]:
        """What was covered at one step is known at the next, so there is no other way."""
        memory: Remembered = state.memory.value
        beam = x.shape[0] // memory.key.shape[0]
        memory = Remembered(_each(memory.key, beam), _each(memory.value, beam), _each_place(memory.places, beam))
        query, so_far, found = self.score.query(x[:, None]), state.so_far, []
        for t in range(x.shape[1]):
            y, weights = self._covering(query[:, :, t : t + 1], memory, places.one(t), so_far)
            so_far = so_far + weights[:, :, 0] * places.keep[:, None, t : t + 1]
            found.append(y)
        return torch.cat(found, 2)[:, 0], Covered(state.memory, so_far)

    def _covering(self, query: Prepared, memory: Remembered, here: Places, so_far: Tensor) -> tuple[Heads, Tensor]:
        assert self.cover is not None
        key: Keys = memory.key + so_far[..., None] * self.cover
        weights = self.pick(self.score.join(query, key), may_look(here, memory.places, self.causal), here)
        self.note("weights", weights, here)
        if self.repeat_cost and self.asked("loss"):
            self.note("loss", self.repeat_cost * torch.minimum(weights, so_far[:, :, None]), here)
        return self.dropout(weights) @ memory.value, weights


def _each(rows: Tensor, beam: int) -> Tensor:
    """Hypotheses that have looked at different places have different keys."""
    return rows if beam == 1 else rows.repeat_interleave(beam, 0)


def _each_place(places: Places, beam: int) -> Places:
    return places if beam == 1 else replace(places, keep=_each(places.keep, beam), at=_each(places.at, beam))
