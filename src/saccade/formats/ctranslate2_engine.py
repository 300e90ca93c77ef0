"""The CTranslate2 engine: the greedy outputs of the torch engine, 1.5 to 3 times as fast, ready within half a second.

Batches of sentences of similar length go to as many workers as there are cores, each with one thread, because a decoder
step is too small to be split among threads. Beam search is CTranslate2's own: it replaces a finished hypothesis in the
beam and stops when it has as many outputs as the beam is wide, whereas Saccade's stops when no open hypothesis can
become better. So its best output sometimes differs (for 19 of 1,000 sentences of Multi30k with a beam of 5).
"""

import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from saccade.config import build
from saccade.data.tokenizers import END, PAD, SPECIAL, START
from saccade.decode.engine import (
    EMPTY_OUTPUT,
    Cancelled,
    DecodeConfig,
    Engine,
    Output,
    check_finite,
    check_prefixes,
)
from saccade.decode.search import Beam, Greedy, Search
from saccade.encoding.cores import cores
from saccade.errors import ConfigError, DataError, RunError
from saccade.formats.exported import ExportedModel

EngineBuilder = Callable[[], Engine]
# The minimum that `next_batch_size` aims at. A batch is smaller if there are too few sentences for all workers, if
# `batch_tokens` or the limit of a beam ends it earlier, or if it is the last one.
MIN_BATCH_SENTENCES = 16
FORBIDDEN_TOKENS = [[SPECIAL[PAD]], [SPECIAL[START]]]  # no output contains them


def next_batch_size(remaining: int, total: int, workers: int) -> int:
    """The size of the next batch: half of each worker's share of the remaining sentences. Batches shrink towards the
    end, so that no worker is busy with the last batch for long while the others are done."""
    return max(min(MIN_BATCH_SENTENCES, math.ceil(total / workers)), math.ceil(remaining / (2 * workers)))


def why_not_search(search: Search, has_prefixes: bool) -> str | None:
    """Why CTranslate2 cannot run this search; None if it can."""
    if not isinstance(search, (Greedy, Beam)):
        return "CTranslate2 samples with its own random generator; use greedy or beam search"
    if has_prefixes and search.width > 1:
        return "CTranslate2 does not score a prefix, so a beam would be ranked differently; use --beam 1"
    return None


class CTranslate2Engine:
    """Runs a folder written by `saccade.formats.ctranslate2`. `build_fallback` builds the engine for inputs that do not
    fit the model's position tables, or whose output may not fit."""

    def __init__(self, folder: Path, exported: ExportedModel, build_fallback: EngineBuilder | None = None):
        self.config, self._build_fallback = exported.config, build_fallback
        self.source, self.target = exported.source, exported.target
        self.source_pieces = exported.source.vocabulary()
        self.target_pieces = exported.target.vocabulary()
        self.target_ids = {piece: i for i, piece in enumerate(self.target_pieces)}
        self._folder, self.cores = folder, available_cores()

    @cached_property
    def single_translator(self) -> Any:
        """For a single batch: always the same worker, whose CPU cache holds the weights."""
        return _translator(self._folder, 1)

    @cached_property
    def parallel_translator(self) -> Any:
        """For several batches: one worker per core."""
        return _translator(self._folder, self.cores) if self.cores > 1 else self.single_translator

    def generate(
        self,
        sources: Sequence[str],
        decode: DecodeConfig,
        prefixes: Sequence[str] | None = None,
        first: int = 0,
        should_continue: Callable[[], bool] = lambda: True,
    ) -> Iterator[tuple[int, list[Output]]]:
        check_prefixes(sources, prefixes)
        forced = self.target.encode(prefixes) if prefixes is not None and any(prefixes) else None
        search: Search = build(decode.search, "decode.search")
        reason = why_not_search(search, forced is not None)
        if reason:
            raise ConfigError(f"decode.search: {reason}, or the torch engine")
        job = _Job(self, search, decode, self.source.encode(sources), forced)
        yield from ((row, [EMPTY_OUTPUT]) for row, ids in enumerate(job.encoded) if not ids)
        too_long = [row for row, ids in enumerate(job.encoded) if ids and not self._fits(job, row)]
        if too_long:
            yield from self._generate_too_long(too_long, sources, decode, prefixes, should_continue)
        yield from self._generate(job, {*too_long}, should_continue)

    def _fits(self, job: "_Job", row: int) -> bool:
        """Whether source and output of a row fit the model's position tables."""
        source_limit, target_limit = self.config.max_source_length, self.config.max_target_length
        source_fits = not source_limit or len(job.encoded[row]) < source_limit
        return source_fits and (not target_limit or job.limits[row] <= target_limit)

    def _generate_too_long(
        self,
        rows: list[int],
        sources: Sequence[str],
        decode: DecodeConfig,
        prefixes: Sequence[str] | None,
        should_continue: Callable[[], bool],
    ) -> Iterator[tuple[int, list[Output]]]:
        if self._build_fallback is None:
            raise DataError(
                f"sentence {rows[0] + 1}: it or its longest possible output exceeds the "
                f"{self.config.max_source_length:,} source and {self.config.max_target_length:,} target positions of "
                "this exported model; translate it from the run with --engine torch"
            )
        forced = [prefixes[row] for row in rows] if prefixes else None
        for number, outputs in self._build_fallback().generate(
            [sources[row] for row in rows], decode, forced, should_continue=should_continue
        ):
            yield rows[number], outputs

    def _generate(
        self, job: "_Job", left_out: set[int], should_continue: Callable[[], bool]
    ) -> Iterator[tuple[int, list[Output]]]:
        """Keep the workers busy: further batches are queued before the results of the first are awaited."""
        batches = job.batches(left_out)
        job.translator = self.parallel_translator if len(batches) > 1 else self.single_translator
        remaining, max_queued = iter(batches), 2 * self.cores
        queued: deque[tuple[list[int], Any]] = deque()
        while True:
            if not should_continue():
                raise Cancelled
            while len(queued) < max_queued and (rows := next(remaining, None)):
                queued.append((rows, job.start(rows)))
            if not queued:
                return
            rows, results = queued.popleft()
            yield from job.finish(rows, [result.result() for result in results])


class _Job:
    """The sentences of one call, and how they are grouped into batches."""

    def __init__(
        self,
        engine: CTranslate2Engine,
        search: Search,
        decode: DecodeConfig,
        encoded: list[list[int]],
        prefixes: list[list[int]] | None,
    ):
        self._engine, self._search, self._decode = engine, search, decode
        self.encoded, self.prefixes = encoded, prefixes
        self.translator: Any = None
        self.limits = [self._limit(row) for row in range(len(encoded))]

    def _limit(self, row: int) -> int:
        """The maximum number of tokens of an output, the end symbol included, as in the torch engine."""
        limit = int(self._decode.ratio * len(self.encoded[row]) + self._decode.extra + 1)
        longest = self._engine.config.longest
        prefix = self.prefixes[row] if self.prefixes else []
        return max(min(limit, longest) if longest else limit, len(prefix) + 1)

    def _beam_limit(self, row: int) -> int:
        """The length at which beam search stops: the limit rounded up to a power of two, so that most sentences share
        it. Greedy search (0) can stop anywhere, because later tokens do not change earlier ones."""
        if self._search.width == 1:
            return 0
        positions = self._engine.config.max_target_length
        rounded = max(32, 1 << (self.limits[row] - 1).bit_length())
        return min(rounded, positions) if positions else rounded

    def batches(self, left_out: set[int]) -> list[list[int]]:
        """Rows of similar length, longest first. CTranslate2 stops all sentences of a batch at the same length. An
        output must not depend on the other sentences of its batch, so only those of equal `_beam_limit` share one."""
        rows = [row for row, ids in enumerate(self.encoded) if ids and row not in left_out]
        rows.sort(key=lambda row: -len(self.encoded[row]))
        batches: list[list[int]] = []
        size = 0
        for finished, row in enumerate(rows):
            if not batches or len(batches[-1]) >= size or self._beam_limit(row) != self._beam_limit(batches[-1][0]):
                batches.append([])
                size = next_batch_size(len(rows) - finished, len(rows), self._engine.cores)
                size = min(size, self._decode.batch_tokens // self._search.width // len(self.encoded[row]))
            batches[-1].append(row)
        return batches

    def start(self, rows: list[int]) -> Any:
        """Queue a batch; returns its pending results."""
        return self._translate(rows, self._beam_limit(rows[0]) or max(self.limits[row] for row in rows))

    def _translate(self, rows: list[int], longest: int, suppressed: list[list[str]] | None = None) -> Any:
        source, target = self._engine.source_pieces, self._engine.target_pieces
        return self.translator.translate_batch(
            [[source[i] for i in self.encoded[row]] for row in rows],
            target_prefix=[[target[i] for i in self.prefixes[row]] for row in rows] if self.prefixes else None,
            asynchronous=True,
            beam_size=self._search.width,
            num_hypotheses=self._search.best,
            length_penalty=self._search.length_penalty,
            max_decoding_length=longest,
            min_decoding_length=0,
            max_input_length=0,
            return_scores=self._decode.scores,  # greedy search computes a softmax only for the scores
            return_end_token=True,
            suppress_sequences=suppressed,
        )

    def finish(self, rows: list[int], results: list[Any]) -> Iterator[tuple[int, list[Output]]]:
        id_of = self._engine.target_ids.__getitem__
        for row, result in zip(rows, results, strict=True):
            hypotheses = [tuple(map(id_of, pieces)) for pieces in result.hypotheses]
            if not self.prefixes and all(self._is_valid(row, tokens) for tokens in hypotheses):
                scores = map(_checked, result.scores) if self._decode.scores else [math.nan] * len(hypotheses)
                yield row, [self._output(t, score) for t, score in zip(hypotheses, scores, strict=True)]
            else:
                yield row, self._corrected(row, hypotheses)

    def _is_valid(self, row: int, tokens: tuple[int, ...]) -> bool:
        """Whether a hypothesis ends within the limit and contains no forbidden token."""
        return len(tokens) <= self.limits[row] and tokens[-1:] == (END,) and PAD not in tokens and START not in tokens

    def _corrected(self, row: int, hypotheses: list[tuple[int, ...]]) -> list[Output]:
        """Outputs from hypotheses that are too long, have a prefix or contain a forbidden token. They are cut at the
        limit and scored again, because CTranslate2 scores neither a prefix nor an end symbol that is added."""
        limit = self.limits[row] - 1
        if any(PAD in tokens or START in tokens for tokens in hypotheses):
            hypotheses = self._without_forbidden(row)
        bodies = {tokens[: tokens.index(END) if END in tokens else None][:limit] for tokens in hypotheses}
        if len(bodies) == 1 and not self._decode.scores:  # there is nothing to rank
            return [self._output((*bodies.pop(), END), math.nan)]
        scored = self.translator.score_batch(
            [[self._engine.source_pieces[i] for i in self.encoded[row]]] * len(bodies),
            [[self._engine.target_pieces[i] for i in body] for body in bodies],
            max_input_length=0,
        )
        log_probs = zip(bodies, (sum(result.log_probs) for result in scored), strict=True)
        penalty = self._search.length_penalty
        outputs = [
            self._output((*body, END), _checked(total) / (len(body) + 1) ** penalty) for body, total in log_probs
        ]
        return sorted(outputs, key=lambda output: -output.score)[: self._search.best]

    def _without_forbidden(self, row: int) -> list[tuple[int, ...]]:
        """Search again with the forbidden tokens suppressed. This is slower, and rarely needed, so it is not the
        default."""
        (result,) = self._translate([row], self._beam_limit(row) or self.limits[row], FORBIDDEN_TOKENS)
        return [tuple(self._engine.target_ids[piece] for piece in pieces) for pieces in result.result().hypotheses]

    def _output(self, tokens: tuple[int, ...], score: float) -> Output:
        target = self._engine.target
        log_prob = score * len(tokens) ** self._search.length_penalty
        pieces = tuple(target.pieces(tokens)) if self._decode.scores else ()
        return Output(target.decode(tokens), pieces, tokens, log_prob, score)


def _checked(score: float) -> float:
    check_finite(score)
    return score


def available_cores() -> int:
    """The number of cores this process may use; OMP_NUM_THREADS limits it, as it limits torch."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdecimal() and int(limit):
        return int(limit)
    return cores()


def _translator(folder: Path, workers: int) -> Any:
    with hide_modules("torch", "transformers"):
        import ctranslate2
    try:
        return ctranslate2.Translator(str(folder), device="cpu", inter_threads=workers, intra_threads=1)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"{folder}: CTranslate2 cannot load it: {error}; run `saccade export` again") from None


@contextmanager
def hide_modules(*names: str) -> Iterator[None]:
    """Make modules impossible to import inside the block. Older versions of CTranslate2 import torch and transformers
    if they are installed, only to convert models."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in names if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
