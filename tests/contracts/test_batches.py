"""The sampler depends on seed, epoch and position only; batches keep their token budget and contain their rows."""

import importlib
import pkgutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from saccade import data
from saccade.data.batches import COLLATE_LABELS, COLLATE_PAIRS, COLLATE_PROMPTED, Collate, Corpus, Draws
from saccade.data.masking import MaskSources
from saccade.data.tokenizers import UNKNOWN

lengths = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=40)
budgets = st.integers(1, 60)
few_examples = settings(max_examples=40, deadline=None)


def corpus_of(sizes: list[tuple[int, int]]) -> Corpus:
    return Corpus([[4] * source for source, _ in sizes], [[5] * target for _, target in sizes])


@pytest.mark.parametrize("gather", [0, 60])
def test_sampler_resumes_exactly_from_any_state(gather: int) -> None:
    check_sampler_resumes(random_corpus(40), 200, gather)


@given(lengths, budgets)
@few_examples
def test_epoch_contains_each_row_once(sizes: list[tuple[int, int]], budget: int) -> None:
    check_each_row_once_per_epoch(corpus_of(sizes), budget)


@given(lengths, budgets, st.integers(0, 100))
@few_examples
def test_batches_keep_token_budget(sizes: list[tuple[int, int]], budget: int, gather: int) -> None:
    check_token_budget(corpus_of(sizes), budget, gather)


@given(lengths, budgets)
@few_examples
def test_batch_contains_its_rows_with_special_tokens(sizes: list[tuple[int, int]], budget: int) -> None:
    check_batch_content(corpus_of(sizes), budget)


def test_order_differs_between_epochs_and_seeds() -> None:
    check_each_row_once_per_epoch(random_corpus(100), 200)


@pytest.mark.parametrize("seed", range(3))
def test_batches_have_little_padding(seed: int) -> None:
    check_little_padding(random_corpus(2000, seed=seed), 1000)


COLLATES: dict[str, Collate] = {
    "pairs": COLLATE_PAIRS,
    "prompted": COLLATE_PROMPTED,
    "labels": COLLATE_LABELS,
    "masked pairs": MaskSources(COLLATE_PAIRS, 0.3),
    "masked prompts": MaskSources(COLLATE_PROMPTED, 0.3),
}


@pytest.mark.parametrize("name", COLLATES)
def test_draws_of_a_row_depend_on_seed_epoch_and_row_only(name: str) -> None:
    check_draws(COLLATES[name])


@pytest.mark.parametrize("name", CASES)
def test_split_batch_has_the_rows_the_loss_and_the_gradients_of_the_whole(name: str) -> None:
    check_split(CASES[name])


def test_every_collate_function_is_split() -> None:
    modules = [importlib.import_module(f"saccade.data.{found.name}") for found in pkgutil.iter_modules(data.__path__)]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    collates = {c for c in classes if c is not Collate and {"lengths", "__call__"} <= {*vars(c)}}
    assert collates == {type(case.collate) for case in CASES.values()}


def test_draws_of_a_row_differ_between_purposes() -> None:
    check_draws_of_purposes()


def test_masking_replaces_the_given_share_of_source_tokens_in_training_only() -> None:
    corpus = Corpus([[4, 5, 6] * 100] * 50, [[4] * 300] * 50, MaskSources(COLLATE_PAIRS, 0.3))
    masked, plain = corpus.batch(range(50), Draws(1, 0)), corpus.batch(range(50))
    assert masked.source is not None
    assert plain.source is not None
    is_masked = masked.source.values == UNKNOWN
    assert is_masked.float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert (masked.source.values == plain.source.values)[~is_masked].all()
    assert not (plain.source.values == UNKNOWN).any()
    assert (masked.outputs.values == plain.outputs.values).all()
    assert not is_masked[:, -1].any(), "the end symbol is masked"
