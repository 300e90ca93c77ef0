"""The checks of tokenizers and batches fail on planted defects."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from contracts.checks.batches import (
    check_batch_content,
    check_draws,
    check_draws_of_purposes,
    check_each_row_once_per_epoch,
    check_little_padding,
    check_sampler_resumes,
    check_token_budget,
    random_corpus,
)
from contracts.checks.splits import CASES, check_split
from contracts.checks.tokenizers import TEXTS, check_tokenizer
from contracts.planted.defects import Check, Defect, Patch, assert_check_fails, each, patched
from saccade.data import batches
from saccade.data.batches import COLLATE_PAIRS, Batch, Corpus, Draws, Padded, SamplerState
from saccade.data.masking import MaskSources
from saccade.data.tokenizers import SPECIAL, SymbolTokenizer, WordKind

pytestmark = pytest.mark.slow
# The original functions: the defects below call them after they are patched.
DUMP, BATCH = SymbolTokenizer.dump, Corpus.batch
CUT, SPLIT, GENERATOR = Padded.cut, Batch.split, Draws.generator
EPOCH_BATCHES, UPDATES, BY_LENGTH = batches.epoch_batches, batches.updates, batches.by_length


def dump_without_last_symbol(self: SymbolTokenizer) -> bytes:
    return DUMP(SymbolTokenizer(self._symbols[len(SPECIAL) : -1], str.split, " "))


def generator_of_the_batch(self: Draws, row: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng([self.seed, self.epoch])


def generator_of_the_epoch(self: Draws, row: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng(row)


def generator_of_every_purpose(self: Draws, row: int, purpose: str) -> np.random.Generator:
    return GENERATOR(self, row, "")


def global_generator(self: Draws, row: int, purpose: str) -> Any:
    return np.random.mtrand._rand


def order_of_global_generator(corpus: Corpus, tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    plan = batches.by_length(corpus, np.random.permutation(len(corpus)), tokens)
    return [plan[i] for i in np.random.permutation(len(plan))]


def same_order_in_every_epoch(corpus: Corpus, tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    return EPOCH_BATCHES(corpus, tokens, 1, 0)


def states_one_batch_late(corpus: Corpus, tokens: int, gather: int, seed: int, start: SamplerState) -> Any:
    for group, state in UPDATES(corpus, tokens, gather, seed, start):
        yield group, replace(state, batch=max(0, state.batch - 1))


def budget_of_source_tokens(corpus: Corpus, order: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Sorted by source length, with a budget of source tokens."""
    order = order[np.argsort(corpus.source_lengths[order], kind="stable")]
    plan: list[list[int]] = [[]]
    for row in order.tolist():
        if (len(plan[-1]) + 1) * (corpus.source_lengths[row] + 1) > tokens and plan[-1]:
            plan.append([])
        plan[-1].append(row)
    return [np.array(rows) for rows in plan]


def not_sorted_by_length(corpus: Corpus, order: np.ndarray, tokens: int) -> list[np.ndarray]:
    widest = 2 + max(corpus.source_lengths.max(), corpus.target_lengths.max())
    return np.array_split(order, max(1, math.ceil(len(order) * widest / tokens)))


def batch_without_end(self: Corpus, rows: Any, draws: Draws) -> Any:
    batch = BATCH(self, rows, draws)
    return replace(batch, outputs=replace(batch.outputs, values=batch.outputs.values.clamp(max=2)))


def cut_to_the_number_of_targets(self: Padded, first: int, end: int, width: int) -> Padded:
    return CUT(self, first, end, int(self.lengths[first:end].max(initial=0)))


def parts_without_the_last_row(self: Batch, count: int) -> list[Batch]:
    return [*SPLIT(self, count)[:-1], SPLIT(self, count)[-1]._rows(0, len(SPLIT(self, count)[-1].rows) - 1)]


def tokenizer_check() -> None:
    kind = WordKind()
    check_tokenizer(kind.learn(TEXTS), kind.read)


def resume_check() -> None:
    check_sampler_resumes(random_corpus(40), 200)


def draws_check() -> None:
    check_draws(MaskSources(COLLATE_PAIRS, 0.3))


def epoch_check() -> None:
    check_each_row_once_per_epoch(random_corpus(100), 200)


DEFECTS = [
    Defect(
        "decoded words without spaces",
        patched(
            SymbolTokenizer, "decode", lambda self, ids: "".join(self._symbols[i] for i in ids if i >= len(SPECIAL))
        ),
        (tokenizer_check,),
    ),
    Defect(
        "a file without the last symbol", patched(SymbolTokenizer, "dump", dump_without_last_symbol), (tokenizer_check,)
    ),
    Defect(
        "special tokens in the decoded text",
        patched(SymbolTokenizer, "decode", lambda self, ids: " ".join(self._symbols[i] for i in ids)),
        (tokenizer_check,),
    ),
    Defect(
        "all tokens in word 0",
        lambda patch: patch.setattr("saccade.data.tokenizers.word_of", lambda pieces: [0] * len(pieces)),
        (tokenizer_check,),
    ),
    Defect("draws of the global generator", patched(Draws, "generator", global_generator), (draws_check,)),
    Defect("the same draws for all rows", patched(Draws, "generator", generator_of_the_batch), (draws_check,)),
    Defect(
        "the same draws for every purpose",
        patched(Draws, "generator", generator_of_every_purpose),
        (check_draws_of_purposes,),
    ),
    Defect("the same draws in every epoch", patched(Draws, "generator", generator_of_the_epoch), (draws_check,)),
    Defect(
        "batches in an order of the global random generator",
        patched(batches, "epoch_batches", order_of_global_generator),
        (resume_check,),
    ),
    Defect(
        "the same order in every epoch", patched(batches, "epoch_batches", same_order_in_every_epoch), (epoch_check,)
    ),
    Defect("a sampler state one batch late", patched(batches, "updates", states_one_batch_late), (resume_check,)),
    Defect(
        "the last batch is left out",
        patched(batches, "by_length", lambda corpus, order, tokens: BY_LENGTH(corpus, order, tokens)[:-1]),
        (epoch_check,),
    ),
    Defect(
        "a token budget for the source only",
        patched(batches, "by_length", budget_of_source_tokens),
        (lambda: check_token_budget(random_corpus(100), 200),),
    ),
    Defect(
        "batches of rows of different lengths",
        patched(batches, "by_length", not_sorted_by_length),
        (lambda: check_little_padding(random_corpus(1000), 1000),),
    ),
    Defect(
        "targets of a part cut to their number",
        patched(Padded, "cut", cut_to_the_number_of_targets),
        tuple(partial(check_split, CASES[name]) for name in ("prompted", "masked prompts", "labels with gaps")),
    ),
    Defect(
        "a split that loses a row",
        patched(Batch, "split", parts_without_the_last_row),
        (partial(check_split, CASES["pairs"]),),
    ),
    Defect(
        "targets without an end token",
        patched(Corpus, "batch", batch_without_end),
        (lambda: check_batch_content(random_corpus(40), 200),),
    ),
]


@each(DEFECTS)
def test_contract_fails_on_planted_defect(defect: Defect, check: Check, monkeypatch: Patch) -> None:
    assert_check_fails(defect, check, monkeypatch)
