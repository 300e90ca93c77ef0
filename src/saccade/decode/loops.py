"""The loops of the searches over a model's tensors. Generators over start / step / select that yield each sentence when
it is done, so a deadline, a cancelled client or a progress bar is a `break` of the caller.

A loop knows of a model only `Writer`, and of its state only `select`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from saccade.data.tokenizers import END, PAD, START
from saccade.decode.rules import FORBIDDEN_IDS, Constraints
from saccade.decode.search import Beam, Sample
from saccade.errors import RunError
from saccade.places import select
from saccade.shapes import Float, Int


@dataclass(frozen=True)
class ScoredTokens:
    """An output: its tokens (the end included), their summed log-probability, and the score it is ranked by."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float


SearchResults = Iterator[
    tuple[int, list[ScoredTokens]]
]  # the number of a sentence in the batch, its outputs, best first


class SingleHypothesis(Protocol):
    """The only hypothesis of the only sentence. It is told the token that was written last (START at first) and asked
    about the next one: each question is a step."""

    def log_probs(self, token: int) -> np.ndarray:
        """Of all words, in 32 bits and for the asker to keep."""
        ...

    def argmax(self, token: int) -> int:
        """Of the words that may be written."""
        ...


class StepModel(Protocol):
    """What a search needs of a model. A memory is handed on as it came: whoever made it starts from it. A state is good
    for one step, which may write into it."""

    def start(self, memory: Any, rows: int) -> Any: ...
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]: ...
    def single(self, memory: Any) -> SingleHypothesis: ...


class SingleRow:
    """A single hypothesis of a writer of tensors."""

    def __init__(self, writer: StepModel, memory: Any):
        self._writer, self._state = writer, writer.start(memory, 1)

    def log_probs(self, token: int) -> np.ndarray:
        log_probs, self._state = self._writer.step(torch.tensor([token]), self._state)
        found = log_probs[0].float().numpy()
        check_finite(float(found[0]))
        return found

    def argmax(self, token: int) -> int:
        log_probs = self.log_probs(token)
        log_probs[FORBIDDEN_IDS] = -math.inf
        return int(log_probs.argmax())


def check_finite(log_prob: float) -> None:
    """One is enough: a softmax spreads what is not finite."""
    if not math.isfinite(log_prob):
        raise RunError("the model's probabilities are not finite; its weights are of no use")


ChooseToken = Callable[[Float[Tensor, "B V"], list[int], int], Int[Tensor, "B"]]


def greedy_or_sample(
    writer: StepModel, memory: Any, rules: Constraints, names: list[int], choose: ChooseToken
) -> SearchResults:
    """One hypothesis a sentence; a finished one leaves the batch."""
    rows = len(names)
    state = writer.start(memory, rows)
    alive = list(range(rows))
    token = torch.full((rows,), START)
    written: list[list[int]] = [[] for _ in names]
    log_prob = torch.zeros(rows)
    for step in range(int(rules.longest.max())):
        log_probs, state = writer.step(token, state)
        log_probs = rules.apply(log_probs[:, None], step)[:, 0]
        token = choose(log_probs, [names[i] for i in alive], step)
        log_prob = log_prob + log_probs.gather(1, token[:, None])[:, 0]
        for row, (sentence, word) in enumerate(zip(alive, token.tolist(), strict=True)):
            written[sentence].append(word)
            if word == END:
                total = float(log_prob[row])
                yield sentence, [ScoredTokens(tuple(written[sentence]), total, total / (step + 1))]
        going = [row for row, sentence in enumerate(alive) if written[sentence][-1] != END]
        if not going:
            return
        if len(going) < len(alive):
            stay = torch.tensor(going)
            alive = [alive[row] for row in going]
            state, rules = select(state, stay, stay), rules.select(stay)
            token, log_prob = token[stay], log_prob[stay]


def single_greedy_or_sample(
    single: SingleHypothesis, rules: Constraints, names: list[int], choose: ChooseToken | None
) -> SearchResults:
    """`greedy_or_sample` for a batch of one sentence, in plain Python numbers: torch's per-call overhead would equal
    the compute of a small model. Without `choose` it writes the argmax token and computes no probabilities."""
    prefix, longest = [word for word in rules.prefix[0].tolist() if word != PAD], int(rules.longest[0])
    written, total = [START], 0.0 if choose else math.nan
    for step in range(longest):
        forced = END if step + 1 == longest else prefix[step] if step < len(prefix) else None
        if choose is None:
            word = single.argmax(written[-1])
        else:
            log_probs = single.log_probs(written[-1])
            log_probs[FORBIDDEN_IDS] = -math.inf
            word = int(choose(torch.from_numpy(log_probs)[None], names, step)) if forced is None else forced
            total += float(log_probs[word])
        written.append(word if forced is None else forced)
        if written[-1] == END:
            break
    yield 0, [ScoredTokens(tuple(written[1:]), total, total / (len(written) - 1))]


def argmax(log_probs: Float[Tensor, "B V"], names: list[int], step: int) -> Int[Tensor, "B"]:
    return torch.from_numpy(log_probs.float().numpy().argmax(-1))  # ten times as fast as torch's


def sample(search: Sample, log_probs: Float[Tensor, "B V"], names: list[int], step: int) -> Int[Tensor, "B"]:
    log_probs, tokens = log_probs.double().sort(-1, descending=True)
    share = ((log_probs - log_probs[:, :1]) / search.temperature).softmax(-1)
    if search.top_k:
        share[:, search.top_k :] = 0
    before = share.cumsum(-1) - share
    share[before >= search.top_p * share.sum(-1, keepdim=True)] = 0
    dice = torch.tensor([_uniform(search.seed, name, step) for name in names], dtype=torch.double)
    reached = share.cumsum(-1) > dice[:, None] * share.sum(-1, keepdim=True)
    return tokens.gather(1, reached.int().argmax(-1, keepdim=True))[:, 0]


def _uniform(seed: int, name: int, step: int) -> float:
    return np.random.Generator(np.random.Philox(key=seed % 2**64, counter=[name, step, 0, 0])).random()


def beam(search: Beam, writer: StepModel, memory: Any, rules: Constraints, names: list[int]) -> SearchResults:
    """The argmax beginnings of each sentence, carried on side by side."""
    beams = _Beams(writer, memory, rules, len(names), search.width)
    done: list[list[ScoredTokens]] = [[] for _ in names]
    for step in range(int(rules.longest.max())):
        for row, tokens, log_prob in beams.advance(step, [len(d) for d in done]):
            done[row].append(ScoredTokens(tokens, log_prob, search.score(log_prob, len(tokens))))
        finished = [
            row for row, hope in beams.best_open_scores() if _is_finished(search, done[row], hope, beams.longest(row))
        ]
        for row in finished:
            yield row, sorted(done[row], key=lambda h: -h.score)[: search.best]
        if beams.remove(finished):
            return


def _is_finished(search: Beam, done: list[ScoredTokens], hope: float, longest: int) -> bool:
    """Nothing is left to hope for, or nothing of it can enter the best."""
    if hope == -math.inf:
        return True
    if len(done) < search.best:
        return False
    return sorted((h.score for h in done), reverse=True)[search.best - 1] >= search.score(hope, longest)


class _Beams:
    """The beginnings of all sentences that are not done: row-major, `size` a sentence."""

    def __init__(self, writer: StepModel, memory: Any, rules: Constraints, sentences: int, size: int):
        self._writer, self._rules, self._size = writer, rules, size
        self._alive = list(range(sentences))
        self._state = select(writer.start(memory, sentences), torch.arange(sentences).repeat_interleave(size))
        self._written = torch.full((sentences, size, 1), START)
        self._score = torch.full((sentences, size), -math.inf)
        self._score[:, 0] = 0.0  # all places begin alike: only one may go on

    def longest(self, row: int) -> int:
        return int(self._rules.longest[self._alive.index(row)])

    def advance(self, step: int, taken: list[int]) -> list[tuple[int, tuple[int, ...], float]]:
        """Write one token; return what ended. `taken`: places of each sentence's beam that outputs have taken."""
        log_probs, state = self._writer.step(self._written[:, :, -1].flatten(), self._state)
        log_probs = self._rules.apply(log_probs.unflatten(0, (-1, self._size)), step)
        words = log_probs.shape[-1]
        score, index = top(self._score[:, :, None].add(log_probs).flatten(1), self._size)
        parent, token = index // words, index % words
        room = self._size - torch.tensor([taken[row] for row in self._alive])
        score = score.masked_fill(torch.arange(self._size) >= room[:, None], -math.inf)
        before = self._written.gather(1, parent[:, :, None].expand(-1, -1, step + 1))
        self._written = torch.cat([before, token[:, :, None]], 2)
        ended = (token == END) & (score > -math.inf)
        out = [
            (self._alive[i], tuple(self._written[i, j, 1:].tolist()), float(score[i, j]))
            for i, j in ended.nonzero().tolist()
        ]
        self._score = score.masked_fill(ended, -math.inf)
        rows = (torch.arange(len(self._alive))[:, None] * self._size + parent).flatten()
        self._state = select(state, rows)
        return out

    def best_open_scores(self) -> list[tuple[int, float]]:
        """For each sentence the log-probability of its best open beginning."""
        return list(zip(self._alive, self._score.amax(1).tolist(), strict=True))

    def remove(self, finished: list[int]) -> bool:
        """Take finished sentences out of the batch; True when none is left."""
        if finished:
            stay = torch.tensor([i for i, row in enumerate(self._alive) if row not in finished], dtype=torch.long)
            self._alive = [self._alive[i] for i in stay.tolist()]
            rows = (stay[:, None] * self._size + torch.arange(self._size)).flatten()
            self._state, self._rules = select(self._state, rows, stay), self._rules.select(stay)
            self._written, self._score = self._written[stay], self._score[stay]
        return not self._alive


def top(scores: Float[Tensor, "B N"], count: int) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """The `count` greatest of each row and where they are, as `topk` gives them, but several times as fast: it compares
    one by one, so the row is first laid in columns, of which only those with the greatest heads can hold them."""
    depth = _depth(scores.shape[1], count)
    table = scores.unflatten(1, (depth, -1))
    columns = table.amax(1).topk(count).indices
    left, index = table.gather(2, columns[:, None].expand(-1, depth, -1)).flatten(1).topk(count)
    return left, index // count * table.shape[2] + columns.gather(1, index % count)


@lru_cache
def _depth(places: int, count: int) -> int:
    """How deep columns are that divide a row without a rest, `count` of them at least."""
    return max(depth for depth in range(1, 33) if places % depth == 0 and (depth == 1 or places // depth >= count))
