"""Greedy search, sampling and beam search over the tensors of a model. `run_search` is the entry point: it picks the
search by its settings.

A search is a generator that yields each sentence when it is finished. It uses only `start`, `step` and `single` of a
model, and `select` of its state.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from saccade.data.tokenizers import END, PAD, START
from saccade.decode.constraints import FORBIDDEN_IDS, Constraints
from saccade.decode.engine import Cancelled, check_finite
from saccade.decode.search import Beam, Sample, Search, output_score
from saccade.places import DecoderState, select
from saccade.shapes import Float, Int


@dataclass(frozen=True)
class ScoredTokens:
    """A finished hypothesis: its tokens (the end symbol included), the sum of their log-probabilities, and the score by
    which it is ranked."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float


# the index of a sentence in the batch, and its finished hypotheses, best first
SearchResults = Iterator[tuple[int, list[ScoredTokens]]]


class SingleHypothesis(Protocol):
    """The only hypothesis of a batch of one sentence. Each call is one decoder step: it takes the last token (START at
    first) and returns the prediction for the next one. Raises RunError if the prediction is not finite."""

    def log_probs(self, token: int) -> np.ndarray:
        """The log-probabilities of all tokens in float32 [V]. The caller may write into the array."""
        ...

    def argmax(self, token: int) -> int:
        """The most likely token that is allowed in an output."""
        ...


MemoryType = TypeVar("MemoryType")  # what a model encodes the sources to
_MemoryIn = TypeVar("_MemoryIn", contravariant=True)


class StepModel(Protocol[_MemoryIn]):
    """A decoder with its head, as a search uses it. The type of memory and state is up to the model. A step may modify
    the state it is given, so each state can be used for one step only."""

    def start(self, memory: _MemoryIn, rows: int) -> DecoderState: ...
    def step(self, tokens: Int[Tensor, "B"], state: DecoderState) -> tuple[Float[Tensor, "B V"], DecoderState]: ...
    def single(self, memory: _MemoryIn) -> SingleHypothesis: ...


class SingleRow(Generic[MemoryType]):
    """A single hypothesis as a batch of one row, for models without a special path for it."""

    def __init__(self, model: StepModel[MemoryType], memory: MemoryType):
        self._model, self._state = model, model.start(memory, 1)

    def log_probs(self, token: int) -> np.ndarray:
        log_probs, self._state = self._model.step(torch.tensor([token]), self._state)
        array = log_probs[0].float().numpy()
        check_finite(float(array[0]))
        return array

    def argmax(self, token: int) -> int:
        log_probs = self.log_probs(token)
        log_probs[FORBIDDEN_IDS] = -math.inf
        return int(log_probs.argmax())


def run_search(
    search: Search,
    model: StepModel[MemoryType],
    memory: MemoryType,
    constraints: Constraints,
    sentence_ids: list[int],
    scores: bool = True,
    should_continue: Callable[[], bool] = lambda: True,
) -> SearchResults:
    """Run a search on a batch of encoded sentences. `sentence_ids` are the numbers of the sentences in the whole input,
    on which the draws of sampling depend. With `scores` false, the log-probabilities of the results may be NaN.
    `should_continue` is called before each step; if it returns False, the search raises `Cancelled`."""
    if isinstance(search, Beam) and search.width > 1:
        return beam(search, model, memory, constraints, should_continue)
    if len(sentence_ids) == 1 and constraints.device.type == "cpu":
        single = model.single(memory)
        return single_greedy_or_sample(search, single, constraints, sentence_ids, scores, should_continue)
    return greedy_or_sample(search, model, memory, constraints, sentence_ids, should_continue)


def _step(
    model: StepModel, tokens: Int[Tensor, "B"], state: DecoderState, should_continue: Callable[[], bool]
) -> tuple[Float[Tensor, "B V"], DecoderState]:
    """One decoder step, unless the search was cancelled."""
    if not should_continue():
        raise Cancelled
    log_probs, state = model.step(tokens, state)
    check_finite(float(log_probs[:, 0].sum()))  # one column is enough: softmax spreads NaN over the whole row
    return log_probs, state


# ── greedy search and sampling ────────────────────────────────────────────────────────────────────


def greedy_or_sample(
    search: Search,
    model: StepModel[MemoryType],
    memory: MemoryType,
    constraints: Constraints,
    sentence_ids: list[int],
    should_continue: Callable[[], bool],
) -> SearchResults:
    """One hypothesis per sentence; finished sentences leave the batch."""
    sentences = len(sentence_ids)
    state = model.start(memory, sentences)
    open_sentences = list(range(sentences))  # the sentence of each row
    token = torch.full((sentences,), START, device=constraints.device)
    outputs: list[list[int]] = [[] for _ in sentence_ids]
    log_prob = torch.zeros(sentences, device=constraints.device)
    for step in range(int(constraints.longest.max())):
        log_probs, state = _step(model, token, state, should_continue)
        log_probs = constraints.apply(log_probs[:, None], step)[:, 0]
        token = next_token(search, log_probs, [sentence_ids[i] for i in open_sentences], step)
        log_prob = log_prob + log_probs.gather(1, token[:, None])[:, 0]
        for row, (sentence, chosen) in enumerate(zip(open_sentences, token.tolist(), strict=True)):
            outputs[sentence].append(chosen)
            if chosen == END:
                total = float(log_prob[row])
                yield sentence, [ScoredTokens(tuple(outputs[sentence]), total, output_score(search, total, step + 1))]
        open_rows = [row for row, sentence in enumerate(open_sentences) if outputs[sentence][-1] != END]
        if not open_rows:
            return
        if len(open_rows) < len(open_sentences):
            rows = torch.tensor(open_rows, device=constraints.device)
            open_sentences = [open_sentences[row] for row in open_rows]
            state, constraints = select(state, rows, rows), constraints.select(rows)
            token, log_prob = token[rows], log_prob[rows]


def single_greedy_or_sample(
    search: Search,
    single: SingleHypothesis,
    constraints: Constraints,
    sentence_ids: list[int],
    scores: bool,
    should_continue: Callable[[], bool],
) -> SearchResults:
    """`greedy_or_sample` for a batch of one sentence, in plain Python: for a small model, torch's overhead per call is
    as large as the computation. Greedy search without `scores` needs only the argmax and computes no softmax."""
    prefix, longest = [token for token in constraints.prefix[0].tolist() if token != PAD], int(constraints.longest[0])
    only_argmax = not scores and not isinstance(search, Sample)
    tokens, total = [START], math.nan if only_argmax else 0.0
    for step in range(longest):
        if not should_continue():
            raise Cancelled
        forced = END if step + 1 == longest else prefix[step] if step < len(prefix) else None
        if only_argmax:
            token = single.argmax(tokens[-1])
        else:
            log_probs = single.log_probs(tokens[-1])
            log_probs[FORBIDDEN_IDS] = -math.inf
            if forced is None:
                token = int(next_token(search, torch.from_numpy(log_probs)[None], sentence_ids, step))
            else:
                token = forced
            total += float(log_probs[token])
        tokens.append(token if forced is None else forced)
        if tokens[-1] == END:
            break
    yield 0, [ScoredTokens(tuple(tokens[1:]), total, output_score(search, total, len(tokens) - 1))]


def next_token(search: Search, log_probs: Float[Tensor, "B V"], sentence_ids: list[int], step: int) -> Int[Tensor, "B"]:
    """A sampled token, or the most likely one."""
    if isinstance(search, Sample):
        return sample(search, log_probs, sentence_ids, step)
    if not log_probs.is_cpu:
        return log_probs.argmax(-1)
    return torch.from_numpy(log_probs.float().numpy().argmax(-1))  # ten times as fast as torch's argmax


def sample(search: Sample, log_probs: Float[Tensor, "B V"], sentence_ids: list[int], step: int) -> Int[Tensor, "B"]:
    """Draw a token per row by inverting the cumulative distribution at a uniform random number. This is computed on the
    CPU, because not every GPU computes in double precision."""
    device = log_probs.device
    log_probs, tokens = log_probs.cpu().double().sort(-1, descending=True)
    probs = ((log_probs - log_probs[:, :1]) / search.temperature).softmax(-1)
    if search.top_k:
        probs[:, search.top_k :] = 0
    before = probs.cumsum(-1) - probs
    probs[before >= search.top_p * probs.sum(-1, keepdim=True)] = 0
    uniform = torch.tensor([_uniform(search.seed, number, step) for number in sentence_ids], dtype=torch.double)
    reached = probs.cumsum(-1) > uniform[:, None] * probs.sum(-1, keepdim=True)
    return tokens.gather(1, reached.int().argmax(-1, keepdim=True))[:, 0].to(device)


def _uniform(seed: int, sentence_id: int, step: int) -> float:
    return np.random.Generator(np.random.Philox(key=seed % 2**64, counter=[sentence_id, step, 0, 0])).random()


# ── beam search ───────────────────────────────────────────────────────────────────────────────────


def beam(
    search: Beam,
    model: StepModel[MemoryType],
    memory: MemoryType,
    constraints: Constraints,
    should_continue: Callable[[], bool],
) -> SearchResults:
    """The most likely hypotheses of each sentence, extended together; finished sentences leave the batch."""
    sentences = len(constraints.longest)
    beams = _Beams(model, memory, constraints, sentences, search.width)
    finished: list[list[ScoredTokens]] = [[] for _ in range(sentences)]
    for step in range(int(constraints.longest.max())):
        counts = [len(hypotheses) for hypotheses in finished]
        for sentence, tokens, log_prob in beams.advance(step, counts, should_continue):
            score = output_score(search, log_prob, len(tokens))
            finished[sentence].append(ScoredTokens(tokens, log_prob, score))
        complete = [
            sentence
            for sentence, log_prob in beams.best_open_log_probs()
            if _is_finished(search, finished[sentence], log_prob, beams.longest(sentence))
        ]
        for sentence in complete:
            yield sentence, sorted(finished[sentence], key=lambda hypothesis: -hypothesis.score)[: search.best]
        if beams.remove(complete):
            return


def _is_finished(search: Beam, finished: list[ScoredTokens], open_log_prob: float, longest: int) -> bool:
    """Whether no hypothesis is open, or none can become one of the `search.best` best: not even if the most likely one
    kept its log-probability `open_log_prob` up to the length `longest`."""
    if open_log_prob == -math.inf:
        return True
    if len(finished) < search.best:
        return False
    worst_of_best = sorted((hypothesis.score for hypothesis in finished), reverse=True)[search.best - 1]
    return worst_of_best >= output_score(search, open_log_prob, longest)


class _Beams(Generic[MemoryType]):
    """The open hypotheses of all unfinished sentences: `size` consecutive rows per sentence."""

    def __init__(
        self, model: StepModel[MemoryType], memory: MemoryType, constraints: Constraints, sentences: int, size: int
    ):
        self._model, self._constraints, self._size = model, constraints, size
        self._sentences = list(range(sentences))
        self._device = constraints.device
        self._indices = torch.arange(size, device=self._device)  # of the hypotheses of a sentence
        rows = torch.arange(sentences, device=self._device).repeat_interleave(size)
        self._state = select(model.start(memory, sentences), rows)
        self._tokens = torch.full((sentences, size, 1), START, device=self._device)
        self._log_prob = torch.full((sentences, size), -math.inf, device=self._device)
        self._log_prob[:, 0] = 0.0  # all hypotheses of a sentence start equal, so only the first may be extended

    def longest(self, sentence: int) -> int:
        return int(self._constraints.longest[self._sentences.index(sentence)])

    def advance(
        self, step: int, finished: list[int], should_continue: Callable[[], bool]
    ) -> list[tuple[int, tuple[int, ...], float]]:
        """Extend all hypotheses by one token and return those that ended: sentence, tokens, log-probability. `finished`
        is the number of hypotheses of each sentence that ended before; its beam is narrower by that number."""
        log_probs, state = _step(self._model, self._tokens[:, :, -1].flatten(), self._state, should_continue)
        log_probs = self._constraints.apply(log_probs.unflatten(0, (-1, self._size)), step)
        vocabulary = log_probs.shape[-1]
        log_prob, index = top(self._log_prob[:, :, None].add(log_probs).flatten(1), self._size)
        parent, token = index // vocabulary, index % vocabulary
        free = self._size - torch.tensor([finished[sentence] for sentence in self._sentences], device=self._device)
        log_prob = log_prob.masked_fill(self._indices >= free[:, None], -math.inf)
        before = self._tokens.gather(1, parent[:, :, None].expand(-1, -1, step + 1))
        self._tokens = torch.cat([before, token[:, :, None]], 2)
        ended = (token == END) & (log_prob > -math.inf)
        results = self._results(ended.nonzero().tolist(), log_prob)
        self._log_prob = log_prob.masked_fill(ended, -math.inf)
        first_rows = torch.arange(0, len(parent) * self._size, self._size, device=self._device)
        self._state = select(state, (first_rows[:, None] + parent).flatten())
        return results

    def _results(self, ended: list[list[int]], log_prob: Tensor) -> list[tuple[int, tuple[int, ...], float]]:
        """The hypotheses at these pairs of indices: sentence, tokens, log-probability."""
        if not ended:
            return []
        tokens, log_prob = self._tokens[:, :, 1:].cpu(), log_prob.cpu()
        return [(self._sentences[i], tuple(tokens[i, j].tolist()), float(log_prob[i, j])) for i, j in ended]

    def best_open_log_probs(self) -> list[tuple[int, float]]:
        """Each sentence with the log-probability of its most likely open hypothesis (−∞ if none is open)."""
        return list(zip(self._sentences, self._log_prob.amax(1).tolist(), strict=True))

    def remove(self, complete: list[int]) -> bool:
        """Take complete sentences out of the batch; True if none is left."""
        if complete:
            kept = [i for i, sentence in enumerate(self._sentences) if sentence not in complete]
            stay = torch.tensor(kept, dtype=torch.long, device=self._device)
            self._sentences = [self._sentences[i] for i in kept]
            rows = (stay[:, None] * self._size + self._indices).flatten()
            self._state, self._constraints = select(self._state, rows, stay), self._constraints.select(stay)
            self._tokens, self._log_prob = self._tokens[stay], self._log_prob[stay]
        return not self._sentences


def top(scores: Float[Tensor, "B N"], count: int) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """The values and indices of the `count` largest entries of each row, as `topk` gives them, but several times as
    fast. topk compares entry by entry. Here each row is reshaped to a table; only the `count` columns with the largest
    maxima can hold the result, so topk runs on the column maxima and then on those columns."""
    depth = _depth(scores.shape[1], count)
    table = scores.unflatten(1, (depth, -1))
    columns = table.amax(1).topk(count).indices
    values, index = table.gather(2, columns[:, None].expand(-1, depth, -1)).flatten(1).topk(count)
    return values, index // count * table.shape[2] + columns.gather(1, index % count)


@lru_cache
def _depth(entries: int, count: int) -> int:
    """The greatest height of columns (up to 32) that divides a row evenly into at least `count` columns."""
    return max(depth for depth in range(1, 33) if entries % depth == 0 and (depth == 1 or entries // depth >= count))
