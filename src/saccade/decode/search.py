"""The settings of greedy search, sampling and beam search. The searches themselves are in `loops`; nothing here needs
torch, so that engines without torch can read the settings."""

from collections.abc import Callable
from typing import Annotated, Protocol

from saccade.config import Count, Natural, NotNegative, Positive, Slot
from saccade.errors import BuildError


class Search(Protocol):
    """The settings that all searches have. `width`: hypotheses kept per sentence. `best`: outputs returned per
    sentence. Outputs are ranked by log p / length^`length_penalty`."""

    width: int
    best: int
    length_penalty: float


class Greedy:
    """The most likely token at each step. The score of an output is the mean log-probability of its tokens."""

    width = best = 1
    length_penalty = 1.0


class Sample:
    """Draws each token from the model's distribution, sharpened by `temperature` and cut to the `top_k` most likely
    tokens and to the fewest tokens that hold `top_p` of the probability (Holtzman et al. 2020). `top_k` = 0 and
    `top_p` = 1 cut nothing. A draw depends on the seed, the sentence's number in the input and the step, but not on the
    batch."""

    width = best = 1
    length_penalty = 1.0

    def __init__(self, *, temperature: Positive = 1.0, top_k: Natural = 0, top_p: Positive = 1.0, seed: int = 1):
        if top_p > 1:
            raise BuildError(f"must be a probability of at most 1, got {top_p}", ("top_p",))
        self.temperature, self.top_k, self.top_p, self.seed = temperature, top_k, top_p, seed


class Beam:
    """Keeps the `size` most likely hypotheses per sentence. Each finished hypothesis narrows the beam of its sentence
    by one, so a beam of one is greedy search. Outputs are ranked by log p / length^`length_penalty` (the end symbol
    counts), and the `best` first are returned.

    The search of a sentence stops as soon as no unfinished hypothesis can become one of the `best` outputs:
    log-probabilities are never above 0, so an unfinished hypothesis with log-probability s can reach at most the score
    s / L^penalty, where L is the length limit.
    """

    def __init__(self, *, size: Count = 5, length_penalty: NotNegative = 1.0, best: Count = 1):
        if best > size:
            raise BuildError(
                f"a beam of size = {size} has at most {size} outputs, got best = {best}; raise size or lower best",
                ("best",),
            )
        self.width, self.length_penalty, self.best = size, length_penalty, best


SEARCHES: dict[str, Callable[..., Search]] = {"greedy": Greedy, "beam": Beam, "sample": Sample}

SearchSlot = Annotated[Callable[..., Search], Slot(SEARCHES)]


def output_score(search: Search, log_prob: float, length: int) -> float:
    """log p / length^penalty, by which outputs are ranked."""
    return log_prob / length**search.length_penalty
