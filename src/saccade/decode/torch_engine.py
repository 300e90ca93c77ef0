"""The engine that runs any model that Saccade can build, on torch."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from saccade.config import build
from saccade.data.batches import Corpus, Side, by_length
from saccade.data.tokenizers import END, Tokenizer
from saccade.decode.engine import EMPTY, Abandoned, DecodeConfig, Output, check_prefixes
from saccade.decode.lean import LeanStep, fits
from saccade.decode.loops import Hypothesis, Writer
from saccade.decode.rules import Rules
from saccade.decode.search import Search
from saccade.decode.workers import side_by_side
from saccade.errors import RunError
from saccade.models.assemble import Model
from saccade.places import Memory
from saccade.shapes import Float, Int


class ReaderWriter(Protocol):
    """What a search engine needs of whatever computes a model: it reads sources, and then it is a search's Writer.
    `longest` is how many tokens it can write (None: any number)."""

    @property
    def longest(self) -> int | None: ...
    def at_work(self) -> "AbstractContextManager[ReaderWriter]":
        """Held for as long as there is something to search for; gives the one to search with."""
        ...

    def read(self, source: Side) -> Any: ...
    def start(self, memory: Any, rows: int) -> Any: ...
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]: ...


class Modules:
    """The steps of any decoder, module by module."""

    def __init__(self, model: Model):
        assert model.decoder is not None
        self._decoder, self._head = model.decoder, model.head

    def start(self, memory: Memory, rows: int) -> Any:
        return self._decoder.start(memory, rows)

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        hidden, state = self._decoder.step(tokens[:, None], state)
        return self._head.log_probs(hidden[:, -1]), state


class ModelWriter:
    """A model as an engine and a search see it; `steps` are those of its decoder."""

    def __init__(self, model: Model, steps: Writer):
        self.model, self.start, self.step = model, steps.start, steps.step

    @property
    def longest(self) -> int | None:
        return self.model.decoder.longest if self.model.decoder else None

    @contextmanager
    def at_work(self) -> "Iterator[ReaderWriter]":
        """Nothing is dropped; a model that is being trained is then trained on."""
        was_training = self.model.training
        if was_training:
            self.model.eval()
        try:
            with torch.inference_mode():
                writer = ModelWriter(self.model, LeanStep(self.model)) if fits(self.model) else self
            yield writer
        finally:
            if was_training:
                self.model.train()

    def read(self, source: Side) -> Memory:
        return self.model.encoder.encode(source.values, source.keep)


class Watched:
    """A writer that stops when nobody waits any more, and when its probabilities are none."""

    def __init__(self, writer: Writer, going: Callable[[], bool]):
        self.start, self._step, self._going = writer.start, writer.step, going

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        if not self._going():
            raise Abandoned
        log_probs, state = self._step(tokens, state)
        if not bool(log_probs[:, 0].isfinite().all()):  # one is enough: a softmax spreads what is not finite
            raise RunError("the model's probabilities are not finite; its weights are of no use")
        return log_probs, state


class SearchEngine:
    """Searches with whatever can read and write, batches side by side."""

    def __init__(self, writer: ReaderWriter, source: Tokenizer, target: Tokenizer):
        self.writer, self.source, self.target = writer, source, target

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
        with self.writer.at_work() as writer:  # the longest first, so that no worker is left alone with them
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
        places = writer.longest or math.inf
        longest = [int(min(decode.ratio * len(corpus.source(row)) + decode.extra + 1, places)) for row in rows]
        rules = Rules.of(longest, [corpus.target(row).tolist() for row in rows])
        memory = writer.read(source)
        found = search(Watched(writer, going), memory, rules, [first + row for row in rows])
        return [(rows[i], [self._output(h) for h in best]) for i, best in found]

    def _output(self, found: Hypothesis) -> Output:
        text, pieces = self.target.decode(found.tokens), self.target.pieces(found.tokens)
        return Output(text, tuple(pieces), found.tokens, found.log_prob, found.score)


def torch_engine(model: Model, source: Tokenizer, target: Tokenizer) -> SearchEngine:
    """Runs any model that Saccade can build."""
    return SearchEngine(ModelWriter(model, Modules(model)), source, target)
