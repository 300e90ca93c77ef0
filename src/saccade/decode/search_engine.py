"""The engine that searches with Saccade's own loops: tokenize, batch, encode, search, detokenize. Torch and ONNX models
both run in it."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import Generic, Protocol

import numpy as np
import torch

from saccade.config import build
from saccade.data.batches import Corpus, Padded, by_length
from saccade.data.tokenizers import END, Tokenizer
from saccade.decode.constraints import Constraints
from saccade.decode.engine import EMPTY_OUTPUT, DecodeConfig, Output, check_prefixes
from saccade.decode.loops import MemoryType, ScoredTokens, StepModel, run_search
from saccade.decode.search import Search
from saccade.decode.workers import limit_threads, parallel_map


class DecodableModel(StepModel[MemoryType], Protocol[MemoryType]):
    """A whole model: an encoder, and a decoder that a search can step. The output for a source of so many tokens has
    at most `longest_output` tokens (None: no limit); both include their end symbol."""

    device: torch.device  # of the sources that `encode` takes, and of all that `step` takes and returns

    def longest_output(self, source_tokens: int) -> int | None: ...
    def encode(self, source: Padded) -> MemoryType: ...


class SearchEngine(Generic[MemoryType]):
    """Runs searches on a model, several batches in parallel. `session` opens the model for the time of one call."""

    def __init__(
        self,
        session: Callable[[], AbstractContextManager[DecodableModel[MemoryType]]],
        source: Tokenizer,
        target: Tokenizer,
    ):
        self.session, self.source, self.target = session, source, target

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
        not_empty = np.array([row for row, ids in enumerate(encoded) if ids], dtype=np.int64)
        search: Search = build(decode.search, "decode.search")
        batches = [rows.tolist() for rows in by_length(corpus, not_empty, decode.batch_tokens // search.width)]
        with self.session() as model:
            work = partial(
                self._generate_batch,
                model,
                corpus,
                search=search,
                decode=decode,
                first=first,
                should_continue=should_continue,
            )
            longest_first = batches[::-1]  # so that no worker is still busy with a long batch when the others are done
            # threads would only wait for each other at a GPU
            results = parallel_map(work, longest_first) if model.device.type == "cpu" else map(work, longest_first)
            yield from chain.from_iterable(results)

    @torch.inference_mode()
    def _generate_batch(
        self,
        model: DecodableModel[MemoryType],
        corpus: Corpus,
        rows: list[int],
        search: Search,
        decode: DecodeConfig,
        first: int,
        should_continue: Callable[[], bool],
    ) -> list[tuple[int, list[Output]]]:
        source = Padded.of([np.append(corpus.source(row), END) for row in rows]).to(model.device)
        longest = [_length_limit(model, len(corpus.source(row)), decode) for row in rows]
        constraints = Constraints.of(longest, [corpus.target(row).tolist() for row in rows]).to(model.device)
        sentence_ids = [first + row for row in rows]
        with limit_threads(len(rows) * search.width):  # a step of one hypothesis is slower on two threads than on one
            memory = model.encode(source)
            results = run_search(search, model, memory, constraints, sentence_ids, decode.scores, should_continue)
            return [(rows[i], [self._output(hypothesis) for hypothesis in hypotheses]) for i, hypotheses in results]

    def _output(self, hypothesis: ScoredTokens) -> Output:
        tokens = hypothesis.tokens
        text, pieces = self.target.decode(tokens), self.target.pieces(tokens)
        return Output(text, tuple(pieces), tokens, hypothesis.log_prob, hypothesis.score)


def _length_limit(model: DecodableModel, source_tokens: int, decode: DecodeConfig) -> int:
    """The most tokens of an output, its end symbol included, for a source of so many tokens without its end symbol."""
    limit = model.longest_output(source_tokens + 1)
    return int(min(decode.ratio * source_tokens + decode.extra + 1, math.inf if limit is None else limit))
