"""The engine on CTranslate2: the same tokens as torch, several times as fast, and ready in half a second.

Batches of about equal length go to as many workers as there are cores, each with one thread: a step of a search is too
small to be shared. Greedy outputs are those of the torch engine. A beam is CTranslate2's own: it fills the place of
what has ended and stops after as many outputs as the beam is wide, where ours stops when nothing better can come. So
now and then its best output is another (for 19 of 1,000 sentences of Multi30k with a beam of 5).
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
from saccade.decode.engine import EMPTY_OUTPUT, Cancelled, DecodeConfig, Engine, Output, check_prefixes
from saccade.decode.search import Beam, Greedy, Search
from saccade.errors import ConfigError, DataError, RunError
from saccade.formats.exported import ExportedModel

FallbackEngine = Callable[[], Engine]
MIN_BATCH_SENTENCES = 16  # sentences that are worth a batch, where others are left for the other workers
FORBIDDEN_TOKENS = [[SPECIAL[PAD]], [SPECIAL[START]]]  # what no output holds


def batch_sentences(left: int, of: int, workers: int) -> int:
    """How many of the sentences that are left go into the next batch: half of what a worker would get of them, so that
    batches shrink towards the end, and no worker is long left alone with the last one."""
    return max(min(MIN_BATCH_SENTENCES, math.ceil(of / workers)), math.ceil(left / (2 * workers)))


def why_not_search(search: Search, forced: bool) -> str | None:
    """Why CTranslate2 cannot search like this; nothing if it can."""
    if not isinstance(search, (Greedy, Beam)):
        return "CTranslate2 draws with dice of its own; sampling needs the torch engine"
    if forced and search.width > 1:
        return "CTranslate2 does not count the cost of a prefix, so a beam would rank otherwise; use --beam 1"
    return None


class CTranslate2Engine:
    """Runs a folder that `saccade.formats.ctranslate2` has written."""

    def __init__(self, folder: Path, exported: ExportedModel, fallback: FallbackEngine | None = None):
        self.package, self._fallback = exported.config, fallback
        self.source, self.target = exported.source, exported.target
        self.names = exported.source.vocabulary()
        self.written = exported.target.vocabulary()
        self.ids = {name: i for i, name in enumerate(self.written)}
        self._folder, self.cores = folder, cores()

    @cached_property
    def one(self) -> Any:
        """For a batch that comes alone: always the same worker, whose cache knows the model."""
        return _translator(self._folder, 1)

    @cached_property
    def many(self) -> Any:
        """For batches that come together: a worker for each core."""
        return _translator(self._folder, self.cores) if self.cores > 1 else self.one

    def generate(
        self,
        sources: Sequence[str],
        decode: DecodeConfig,
        prefixes: Sequence[str] | None = None,
        first: int = 0,
        should_continue: Callable[[], bool] = lambda: True,
    ) -> Iterator[tuple[int, list[Output]]]:
        check_prefixes(sources, prefixes)
        forced = prefixes is not None and any(prefixes)
        search: Search = build(decode.search, "decode.search")
        reason = why_not_search(search, forced)
        if reason:
            raise ConfigError(f"decode.search: {reason}")
        begins = self.target.encode(prefixes) if forced and prefixes else None
        task = _Work(self, search, decode, self.source.encode(sources), begins)
        yield from ((row, [EMPTY_OUTPUT]) for row, ids in enumerate(task.encoded) if not ids)
        long = [row for row, ids in enumerate(task.encoded) if ids and not self._holds(task, row)]
        if long:
            yield from self._generate_long(long, sources, decode, prefixes, should_continue)
        yield from self._generate(task, {*long}, should_continue)

    def _holds(self, task: "_Work", row: int) -> bool:
        places = self.package
        fits = not places.source_places or len(task.encoded[row]) < places.source_places
        return fits and (not places.target_places or task.bounds[row] <= places.target_places)

    def _generate_long(
        self,
        rows: list[int],
        sources: Sequence[str],
        decode: DecodeConfig,
        prefixes: Sequence[str] | None,
        going: Callable[[], bool],
    ) -> Iterator[tuple[int, list[Output]]]:
        """Lines that are too long for the model's table of places go to the engine that has no such table."""
        if self._fallback is None:
            raise DataError(
                f"sentence {rows[0] + 1}: is too long for this folder, which knows {self.package.source_places:,} "
                "places of a source; translate it with the run and --engine torch"
            )
        begins = [prefixes[row] for row in rows] if prefixes else None
        for number, outputs in self._fallback().generate(
            [sources[row] for row in rows], decode, begins, should_continue=going
        ):
            yield rows[number], outputs

    def _generate(
        self, task: "_Work", left_out: set[int], going: Callable[[], bool]
    ) -> Iterator[tuple[int, list[Output]]]:
        """Keep the workers busy: the next batches are handed over before the results of the first are asked for."""
        waiting: deque[tuple[list[int], Any]] = deque()
        batches = task.batches(left_out)
        task.translator = self.many if len(batches) > 1 else self.one
        left, most = iter(batches), 2 * self.cores
        while True:
            if not going():
                raise Cancelled
            while len(waiting) < most and (rows := next(left, None)):
                waiting.append((rows, task.begin(rows)))
            if not waiting:
                return
            rows, results = waiting.popleft()
            yield from task.finish(rows, [each.result() for each in results])


class _Work:
    """The sentences of one call, cut into batches."""

    def __init__(
        self,
        engine: CTranslate2Engine,
        search: Any,
        decode: DecodeConfig,
        encoded: list[list[int]],
        prefixes: list[list[int]] | None,
    ):
        self._engine, self._decode, self.encoded, self.prefixes = engine, decode, encoded, prefixes
        self.translator: Any = None
        self.bounds = [self._bound(row) for row in range(len(encoded))]
        self._width: int = search.width
        self._penalty: float = getattr(search, "length_penalty", 1.0)  # greedy search has the mean for a score
        self._best: int = getattr(search, "best", 1)

    def _bound(self, row: int) -> int:
        """The most tokens of an output, its end included: as the torch engine counts them."""
        most = int(self._decode.ratio * len(self.encoded[row]) + self._decode.extra + 1)
        longest = self._engine.package.longest
        return max(min(most, longest) if longest else most, len(self._forced(row)) + 1)

    def _most(self, row: int) -> int:
        """Where a beam stops: at the power of two that holds the bound, so that few batches differ in it. Greedy search
        may be cut anywhere, since what comes later changes nothing before it."""
        if self._width == 1:
            return 0
        places = self._engine.package.target_places
        roomy = max(32, 1 << (self.bounds[row] - 1).bit_length())
        return min(roomy, places) if places else roomy

    def _forced(self, row: int) -> list[int]:
        return self.prefixes[row] if self.prefixes else []

    def batches(self, left_out: set[int]) -> list[list[int]]:
        """Rows of about equal length, the longest first. All of a batch are cut off at one length, which must not
        depend on the company a line has: so only lines with the same power of two come together."""
        full = [row for row, ids in enumerate(self.encoded) if ids and row not in left_out]
        full.sort(key=lambda row: -len(self.encoded[row]))
        batches: list[list[int]] = []
        room = 0
        for done, row in enumerate(full):
            if not batches or len(batches[-1]) >= room or self._most(row) != self._most(batches[-1][0]):
                batches.append([])
                most = batch_sentences(len(full) - done, len(full), self._engine.cores)
                room = min(most, self._decode.batch_tokens // self._width // len(self.encoded[row]))
            batches[-1].append(row)
        return batches

    def begin(self, rows: list[int]) -> Any:
        return self._translate(rows, self._most(rows[0]) or max(self.bounds[row] for row in rows))

    def _translate(self, rows: list[int], longest: int, never: list[list[str]] | None = None) -> Any:
        engine = self._engine
        names, written = engine.names, engine.written
        return self.translator.translate_batch(
            [[names[i] for i in self.encoded[row]] for row in rows],
            target_prefix=[[written[i] for i in self.prefixes[row]] for row in rows] if self.prefixes else None,
            asynchronous=True,
            beam_size=self._width,
            num_hypotheses=self._best,
            length_penalty=self._penalty,
            max_decoding_length=longest,
            min_decoding_length=0,
            max_input_length=0,
            return_scores=self._decode.scores,  # greedy search has to sum over all words for them
            return_end_token=True,
            suppress_sequences=never,
        )

    def finish(self, rows: list[int], results: list[Any]) -> Iterator[tuple[int, list[Output]]]:
        id_of = self._engine.ids.__getitem__
        for row, result in zip(rows, results, strict=True):
            found = [tuple(map(id_of, names)) for names in result.hypotheses]
            if not self.prefixes and all(self._is_whole(row, tokens) for tokens in found):
                scores = [math.nan] * len(found) if not self._decode.scores else map(_checked, result.scores)
                yield row, [self._output(t, score) for t, score in zip(found, scores, strict=True)]
            else:
                yield row, self._with_care(row, found)

    def _is_whole(self, row: int, tokens: tuple[int, ...]) -> bool:
        """It has ended in time, and holds nothing that may not be written."""
        return len(tokens) <= self.bounds[row] and tokens[-1:] == (END,) and PAD not in tokens and START not in tokens

    def _with_care(self, row: int, found: list[tuple[int, ...]]) -> list[Output]:
        """Outputs that are too long, have a prefix or hold what may not be written: they are cut off where they should
        have ended, and their cost is counted anew, because CTranslate2 counts neither a prefix nor a missing end."""
        most = self.bounds[row] - 1
        if any(PAD in tokens or START in tokens for tokens in found):
            found = self._again(row)
        bodies = {tokens[: tokens.index(END) if END in tokens else None][:most] for tokens in found}
        if len(bodies) == 1 and not self._decode.scores:  # nothing to rank
            return [self._output((*bodies.pop(), END), math.nan)]
        scored = self.translator.score_batch(
            [[self._engine.names[i] for i in self.encoded[row]]] * len(bodies),
            [[self._engine.written[i] for i in body] for body in bodies],
            max_input_length=0,
        )
        costs = zip(bodies, (sum(each.log_probs) for each in scored), strict=True)
        ranked = [((*body, END), _checked(total) / (len(body) + 1) ** self._penalty) for body, total in costs]
        outputs = [self._output(*each) for each in ranked]
        return sorted(outputs, key=lambda output: -output.score)[: self._best]

    def _again(self, row: int) -> list[tuple[int, ...]]:
        """Search with what may not be written left out; not from the first, because it is slower and seldom needed."""
        (result,) = self._translate([row], self._most(row) or self.bounds[row], FORBIDDEN_TOKENS)
        return [tuple([self._engine.ids[name] for name in names]) for names in result.result().hypotheses]

    def _output(self, tokens: tuple[int, ...], score: float) -> Output:
        target = self._engine.target
        log_prob = score * len(tokens) ** self._penalty
        pieces = () if not self._decode.scores else tuple(target.pieces(tokens))
        return Output(target.decode(tokens), pieces, tokens, log_prob, score)


def _checked(score: float) -> float:
    if not math.isfinite(score):
        raise RunError("the model's probabilities are not finite; its weights are of no use")
    return score


def cores() -> int:
    """As many as this process may use; OMP_NUM_THREADS says so for torch, too."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isdecimal() and int(said):
        return int(said)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _translator(folder: Path, workers: int) -> Any:
    with hide_modules("torch", "transformers"):
        import ctranslate2
    try:
        return ctranslate2.Translator(str(folder), device="cpu", inter_threads=workers, intra_threads=1)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"{folder}: CTranslate2 cannot read it: {error}; make it anew with `saccade export`") from None


@contextmanager
def hide_modules(*names: str) -> Iterator[None]:
    """Older CTranslate2 imports torch and transformers, if they are installed, only to convert models."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
