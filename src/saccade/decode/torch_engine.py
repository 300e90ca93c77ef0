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
from saccade.data.batches import Corpus, Padded, by_length
from saccade.data.tokenizers import END, Tokenizer
from saccade.decode.engine import EMPTY_OUTPUT, Cancelled, DecodeConfig, Output, check_prefixes
from saccade.decode.fused import FusedDecoder, FusedEncoder, can_fuse_decoder, can_fuse_encoder
from saccade.decode.loops import ScoredTokens, SingleHypothesis, SingleRow, StepModel, check_finite
from saccade.decode.rules import Constraints
from saccade.decode.search import Search
from saccade.decode.single import SingleDecoder, can_decode_single
from saccade.decode.workers import limit_threads, parallel_map
from saccade.models.assemble import Model
from saccade.notes import Part
from saccade.places import Memory
from saccade.shapes import Float, Int


class DecodableModel(StepModel, Protocol):
    """What a search engine needs of whatever computes a model: it reads sources, and then it is a search's Writer."""

    def encode(self, source: Padded) -> Any: ...


class ModelRunner(Protocol):
    """Whatever computes a model. `longest` is how many tokens it can write (None: any number)."""

    @property
    def longest(self) -> int | None: ...
    def session(self) -> AbstractContextManager[DecodableModel]:
        """Held for as long as there is something to search for."""
        ...


class UnfusedModel:
    """Any model, module by module."""

    def __init__(self, model: Model):
        assert model.decoder is not None
        self._decoder, self._head, self._encode = model.decoder, model.head, model.encoder.encode

    def encode(self, source: Padded) -> Memory:
        return self._encode(source.values, source.keep)

    def start(self, memory: Memory, rows: int) -> Any:
        return self._decoder.start(memory, rows)

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        hidden, state = self._decoder.step(tokens[:, None], state)
        return self._head.log_probs(hidden[:, -1]), state

    def single(self, memory: Memory) -> SingleHypothesis:
        return SingleRow(self, memory)


class FusedModel:
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
        self._known, self._marked = self._objects(), self._versions()
        encode = FusedEncoder(model) if can_fuse_encoder(model) else model.encoder.encode
        steps = _step_model(model)
        self._encode, self.start, self.step, self.single = encode, steps.start, steps.step, steps.single

    def encode(self, source: Padded) -> Memory:
        return self._encode(source.values, source.keep)

    def is_current(self) -> bool:
        return all(map(is_, self._objects(), self._known)) and self._versions() == self._marked

    def _objects(self) -> list[Any]:
        """All parts, weights and listeners, as they are now."""
        return [*[table[name] for table, name in self._slots], *[part._listeners for part in self._listeners]]

    def _versions(self) -> list[int]:
        """What changes when a weight does."""
        return [*[weight._version for weight in self._counted], *[weight.data_ptr() for weight in self._weights]]


def _step_model(model: Model) -> StepModel:
    if not can_fuse_decoder(model):
        return UnfusedModel(model)
    fused = FusedDecoder(model)
    return SingleDecoder(fused) if can_decode_single(fused) else fused


class TorchRunner:
    """Torch computes the model."""

    def __init__(self, model: Model):
        self.model = model
        self._fused: FusedModel | None = None

    @property
    def longest(self) -> int | None:
        return self.model.decoder.longest if self.model.decoder else None

    @contextmanager
    def session(self) -> Iterator[DecodableModel]:
        """Nothing is dropped; a model that is being trained is then trained on."""
        was_training = self.model.training
        if was_training:
            self.model.eval()
        try:
            if was_training or self._fused is None or not self._fused.is_current():
                self._fused = FusedModel(self.model)
            yield self._fused
        finally:
            if was_training:
                self.model.train()


class CancellableModel:
    """A writer that stops when nobody waits any more, and when its probabilities are none."""

    def __init__(self, writer: StepModel, going: Callable[[], bool]):
        self.start, self._step, self._lone, self._going = writer.start, writer.step, writer.single, going

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        self.check()
        log_probs, state = self._step(tokens, state)
        check_finite(float(log_probs[:, 0].sum()))
        return log_probs, state

    def single(self, memory: Any) -> "CancellableHypothesis":
        return CancellableHypothesis(self._lone(memory), self.check)

    def check(self) -> None:
        if not self._going():
            raise Cancelled


class CancellableHypothesis:
    """A single hypothesis that stops when nobody waits any more."""

    def __init__(self, single: SingleHypothesis, ask: Callable[[], None]):
        self._lone, self._ask = single, ask

    def log_probs(self, token: int) -> np.ndarray:
        self._ask()
        return self._lone.log_probs(token)

    def argmax(self, token: int) -> int:
        self._ask()
        return self._lone.argmax(token)


class SearchEngine:
    """Searches with whatever computes a model, batches side by side."""

    def __init__(self, runner: ModelRunner, source: Tokenizer, target: Tokenizer):
        self.runner, self.source, self.target = runner, source, target

    def generate(
        self,
        sources: Sequence[str],
        decode: DecodeConfig,
        prefixes: Sequence[str] | None = None,
        first: int = 0,
        should_continue: Callable[[], bool] = lambda: True,
    ) -> Iterator[tuple[int, list[Output]]]:
        check_prefixes(sources, prefixes)
        encoded = self.source.encode(sources)
        corpus = Corpus(encoded, self.target.encode(prefixes) if prefixes else [[]] * len(encoded))
        yield from ((row, [EMPTY_OUTPUT]) for row, ids in enumerate(encoded) if not ids)
        full = np.array([row for row, ids in enumerate(encoded) if ids], dtype=np.int64)
        search: Search = build(decode.search, "decode.search")
        batches = [rows.tolist() for rows in by_length(corpus, full, decode.batch_tokens // search.width)]
        with self.runner.session() as writer:  # the longest first, so that no worker is left alone with them
            work = partial(
                self._generate_batch,
                writer,
                corpus,
                search=search,
                decode=decode,
                first=first,
                should_continue=should_continue,
            )
            yield from chain.from_iterable(parallel_map(work, batches[::-1]))

    @torch.inference_mode()
    def _generate_batch(
        self,
        writer: DecodableModel,
        corpus: Corpus,
        rows: list[int],
        search: Search,
        decode: DecodeConfig,
        first: int,
        should_continue: Callable[[], bool],
    ) -> list[tuple[int, list[Output]]]:
        source = Padded.of([np.append(corpus.source(row), END) for row in rows])
        places = self.runner.longest or math.inf
        longest = [int(min(decode.ratio * len(corpus.source(row)) + decode.extra + 1, places)) for row in rows]
        rules = Constraints.of(longest, [corpus.target(row).tolist() for row in rows])
        names = [first + row for row in rows]
        with limit_threads(len(rows) * search.width):  # two threads would fight over the step of a single hypothesis
            found = [
                *search(CancellableModel(writer, should_continue), writer.encode(source), rules, names, decode.scores)
            ]
        return [(rows[i], [self._output(h) for h in best]) for i, best in found]

    def _output(self, found: ScoredTokens) -> Output:
        text, pieces = self.target.decode(found.tokens), self.target.pieces(found.tokens)
        return Output(text, tuple(pieces), found.tokens, found.log_prob, found.score)


def torch_engine(model: Model, source: Tokenizer, target: Tokenizer) -> SearchEngine:
    """Runs any model that Saccade can build."""
    return SearchEngine(TorchRunner(model), source, target)
