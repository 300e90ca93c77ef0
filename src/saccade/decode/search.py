"""Searches: greedy, sampling, beam. Here are their settings, which anyone may read; the loops over tensors stand in
`loops` and are imported when a search is called, so that an engine without torch need not wait for it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from saccade.config import Count, Natural, NotNegative, Positive, Slot
from saccade.errors import BuildError

if TYPE_CHECKING:
    from saccade.decode.loops import ScoredTokens, SearchResults, StepModel
    from saccade.decode.rules import Constraints


class Search(Protocol):
    """The contract. `names` are the numbers of the sentences in the whole input, for draws that ignore batches; if not
    `scored`, nobody asks how likely outputs are. `width` is how many hypotheses of a sentence are held at a time."""

    width: int

    def __call__(
        self, writer: "StepModel", memory: Any, rules: "Constraints", names: list[int], scored: bool = True
    ) -> "SearchResults": ...


class Greedy:
    """The argmax token at each step."""

    width = 1

    def __call__(
        self, writer: "StepModel", memory: Any, rules: "Constraints", names: list[int], scored: bool = True
    ) -> "SearchResults":
        from saccade.decode.loops import argmax, greedy_or_sample, single_greedy_or_sample

        if len(names) == 1:
            return single_greedy_or_sample(writer.single(memory), rules, names, argmax if scored else None)
        return greedy_or_sample(writer, memory, rules, names, argmax)


class Sample:
    """A token drawn from the model's distribution: sharpened by `temperature`, cut to the `top_k` argmax and to
    the fewest that hold `top_p` of the probability (Holtzman et al. 2020). 0 and 1 cut nothing. A draw depends on the
    seed, the sentence's number and the step alone, never on the batch."""

    width = 1

    def __init__(self, *, temperature: Positive = 1.0, top_k: Natural = 0, top_p: Positive = 1.0, seed: int = 1):
        if top_p > 1:
            raise BuildError(f"top_p is a probability, got {top_p}")
        self.temperature, self.top_k, self.top_p, self.seed = temperature, top_k, top_p, seed

    def __call__(
        self, writer: "StepModel", memory: Any, rules: "Constraints", names: list[int], scored: bool = True
    ) -> "SearchResults":
        from saccade.decode.loops import greedy_or_sample, sample, single_greedy_or_sample

        if len(names) == 1:
            return single_greedy_or_sample(writer.single(memory), rules, names, partial(sample, self))
        return greedy_or_sample(writer, memory, rules, names, partial(sample, self))


class Beam:
    """The `size` argmax beginnings are carried on; an output takes its place out of the beam when it ends, so a
    beam of one is greedy search. Outputs are ranked by log p / length^`length_penalty` (the end counts); the `best`
    first are given.

    It stops early only when no beginning can still be better: log-probabilities are never above 0, so a beginning of
    log-probability s ends at s / L^penalty at best, over the lengths L still open.
    """

    def __init__(self, *, size: Count = 5, length_penalty: NotNegative = 1.0, best: Count = 1):
        if best > size:
            raise BuildError(f"best = {best} outputs cannot come out of a beam of size = {size}")
        self.width, self.length_penalty, self.best = size, length_penalty, best

    def __call__(
        self, writer: "StepModel", memory: Any, rules: "Constraints", names: list[int], scored: bool = True
    ) -> "SearchResults":
        from saccade.decode.loops import beam

        if self.width > 1:
            return beam(self, writer, memory, rules, names)
        return ((row, [self._scored(only)]) for row, (only,) in Greedy()(writer, memory, rules, names, scored))

    def _scored(self, found: "ScoredTokens") -> "ScoredTokens":
        return replace(found, score=self.score(found.log_prob, len(found.tokens)))

    def score(self, log_prob: float, length: int) -> float:
        return log_prob / length**self.length_penalty


SEARCHES: dict[str, Callable[..., Search]] = {"greedy": Greedy, "beam": Beam, "sample": Sample}

SearchSlot = Annotated[Callable[..., Search], Slot(SEARCHES)]
