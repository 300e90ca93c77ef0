"""The engine that runs any model that Saccade can build, on torch."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from operator import is_
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from saccade.config import build
from saccade.data.batches import Corpus, Side, by_length
from saccade.data.tokenizers import END, Tokenizer
from saccade.decode.engine import EMPTY, Abandoned, DecodeConfig, Output, check_prefixes
from saccade.decode.lean import LeanRead, LeanStep, can_read, can_step
from saccade.decode.lone import LoneStep, can_be_alone
from saccade.decode.loops import Hypothesis, Lone, OneRow, Writer, check_finite
from saccade.decode.rules import Rules
from saccade.decode.search import Search
from saccade.decode.workers import at_most_threads, side_by_side
from saccade.models.assemble import Model
from saccade.notes import Part
from saccade.places import Memory
from saccade.shapes import Float, Int


class ReaderWriter(Writer, Protocol):
    """What a search engine needs of whatever computes a model: it reads sources, and then it is a search's Writer."""

    def read(self, source: Side) -> Any: ...


class Computer(Protocol):
    """Whatever computes a model. `longest` is how many tokens it can write (None: any number)."""

    @property
    def longest(self) -> int | None: ...
    def at_work(self) -> AbstractContextManager[ReaderWriter]:
        """Held for as long as there is something to search for."""
        ...


class Modules:
    """Any model, module by module."""

    def __init__(self, model: Model):
        assert model.decoder is not None
        self._decoder, self._head, self._encode = model.decoder, model.head, model.encoder.encode

    def read(self, source: Side) -> Memory:
        return self._encode(source.values, source.keep)

    def start(self, memory: Memory, rows: int) -> Any:
        return self._decoder.start(memory, rows)

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        hidden, state = self._decoder.step(tokens[:, None], state)
        return self._head.log_probs(hidden[:, -1]), state

    def lone(self, memory: Memory) -> Lone:
        return OneRow(self, memory)


class Quick:
    """A model with as much of it written out as can be, for as long as its parts, weights and listeners stay the same.
    Some weights are copied; torch counts the changes of a weight, but not those behind its back (into `.data`, or by
    fused optimizers other than Saccade's)."""

    @torch.inference_mode()
    def __init__(self, model: Model):
        self._listeners = [part for part in model.modules() if isinstance(part, Part)]
        owners = [*model.modules()]
        self._slots = [(t, name) for owner in owners for t in (owner._modules, owner._parameters) for name in t]
        self._weights = [weight for owner in owners for weight in owner._parameters.values() if weight is not None]
        self._counted = [weight for weight in self._weights if not weight.is_inference()]
        self._known, self._marked = self._things(), self._marks()
        encode = LeanRead(model) if can_read(model) else model.encoder.encode
        steps = _steps_of(model)
        self._encode, self.start, self.step, self.lone = encode, steps.start, steps.step, steps.lone

    def read(self, source: Side) -> Memory:
        return self._encode(source.values, source.keep)

    def holds(self) -> bool:
        return all(map(is_, self._things(), self._known)) and self._marks() == self._marked

    def _things(self) -> list[Any]:
        """All parts, weights and listeners, as they are now."""
        return [*[table[name] for table, name in self._slots], *[part._ears for part in self._listeners]]

    def _marks(self) -> list[int]:
        """What changes when a weight does."""
        return [*[weight._version for weight in self._counted], *[weight.data_ptr() for weight in self._weights]]


def _steps_of(model: Model) -> Writer:
    if not can_step(model):
        return Modules(model)
    lean = LeanStep(model)
    return LoneStep(lean) if can_be_alone(lean) else lean


class OnTorch:
    """Torch computes the model."""

    def __init__(self, model: Model):
        self.model = model
        self._quick: Quick | None = None

    @property
    def longest(self) -> int | None:
        return self.model.decoder.longest if self.model.decoder else None

    @contextmanager
    def at_work(self) -> Iterator[ReaderWriter]:
        """Nothing is dropped; a model that is being trained is then trained on."""
        was_training = self.model.training
        if was_training:
            self.model.eval()
        try:
            if was_training or self._quick is None or not self._quick.holds():
                self._quick = Quick(self.model)
            yield self._quick
        finally:
            if was_training:
                self.model.train()


class Watched:
    """A writer that stops when nobody waits any more, and when its probabilities are none."""

    def __init__(self, writer: Writer, going: Callable[[], bool]):
        self.start, self._step, self._lone, self._going = writer.start, writer.step, writer.lone, going

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        self.ask()
        log_probs, state = self._step(tokens, state)
        check_finite(float(log_probs[:, 0].sum()))
        return log_probs, state

    def lone(self, memory: Any) -> "WatchedLone":
        return WatchedLone(self._lone(memory), self.ask)

    def ask(self) -> None:
        if not self._going():
            raise Abandoned


class WatchedLone:
    """A lone hypothesis that stops when nobody waits any more."""

    def __init__(self, lone: Lone, ask: Callable[[], None]):
        self._lone, self._ask = lone, ask

    def log_probs(self, token: int) -> np.ndarray:
        self._ask()
        return self._lone.log_probs(token)

    def likeliest(self, token: int) -> int:
        self._ask()
        return self._lone.likeliest(token)


class SearchEngine:
    """Searches with whatever computes a model, batches side by side."""

    def __init__(self, computer: Computer, source: Tokenizer, target: Tokenizer):
        self.computer, self.source, self.target = computer, source, target

    def find(
        self,
        sources: Sequence[str],
        decode: DecodeConfig,
        prefixes: Sequence[str] | None = None,
        first: int = 0,
        going: Callable[[], bool] = lambda: True,
    ) -> Iterator[tuple[int, list[Output]]]:
        check_prefixes(sources, prefixes)
        encoded = self.source.encode(sources)
        corpus = Corpus(encoded, self.target.encode(prefixes) if prefixes else [[]] * len(encoded))
        yield from ((row, [EMPTY]) for row, ids in enumerate(encoded) if not ids)
        full = np.array([row for row, ids in enumerate(encoded) if ids], dtype=np.int64)
        search: Search = build(decode.search, "decode.search")
        batches = [rows.tolist() for rows in by_length(corpus, full, decode.batch_tokens // search.width)]
        with self.computer.at_work() as writer:  # the longest first, so that no worker is left alone with them
            work = partial(self._find_batch, writer, corpus, search=search, decode=decode, first=first, going=going)
            yield from chain.from_iterable(side_by_side(work, batches[::-1]))

    @torch.inference_mode()
    def _find_batch(
        self,
        writer: ReaderWriter,
        corpus: Corpus,
        rows: list[int],
        search: Search,
        decode: DecodeConfig,
        first: int,
        going: Callable[[], bool],
    ) -> list[tuple[int, list[Output]]]:
        source = Side.of([np.append(corpus.source(row), END) for row in rows])
        places = self.computer.longest or math.inf
        longest = [int(min(decode.ratio * len(corpus.source(row)) + decode.extra + 1, places)) for row in rows]
        rules = Rules.of(longest, [corpus.target(row).tolist() for row in rows])
        names = [first + row for row in rows]
        with at_most_threads(len(rows) * search.width):  # two threads would fight over the step of a lone hypothesis
            found = [*search(Watched(writer, going), writer.read(source), rules, names, not decode.text_only)]
        return [(rows[i], [self._output(h) for h in best]) for i, best in found]

    def _output(self, found: Hypothesis) -> Output:
        text, pieces = self.target.decode(found.tokens), self.target.pieces(found.tokens)
        return Output(text, tuple(pieces), found.tokens, found.log_prob, found.score)


def torch_engine(model: Model, source: Tokenizer, target: Tokenizer) -> SearchEngine:
    """Runs any model that Saccade can build."""
    return SearchEngine(OnTorch(model), source, target)
