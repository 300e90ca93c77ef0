"""Which rows come when is a pure function of seed, epoch and position."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import checks
from contracts.checks import random_corpus
from saccade.data.batches import Corpus

lengths = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=40)
budgets = st.integers(1, 60)
quickly = settings(max_examples=40, deadline=None)


def corpus_of(sizes: list[tuple[int, int]]) -> Corpus:
    return Corpus([[4] * source for source, _ in sizes], [[5] * target for _, target in sizes])


@pytest.mark.parametrize("gather", [0, 60])
def test_training_resumes_at_any_position_with_the_same_rest(gather: int) -> None:
    checks.check_resume(random_corpus(40), 200, gather)


@given(lengths, budgets)
@quickly
def test_every_row_comes_once_an_epoch(sizes: list[tuple[int, int]], budget: int) -> None:
    checks.check_once_an_epoch(corpus_of(sizes), budget)


@given(lengths, budgets, st.integers(0, 100))
@quickly
def test_the_budget_of_tokens_is_kept(sizes: list[tuple[int, int]], budget: int, gather: int) -> None:
    checks.check_budget(corpus_of(sizes), budget, gather)


@given(lengths, budgets)
@quickly
def test_a_batch_holds_what_its_rows_say(sizes: list[tuple[int, int]], budget: int) -> None:
    checks.check_batch_content(corpus_of(sizes), budget)


def test_epochs_and_seeds_mix_anew() -> None:
    checks.check_once_an_epoch(random_corpus(100), 200)


@pytest.mark.parametrize("seed", range(3))
def test_little_is_padding(seed: int) -> None:
    checks.check_little_padding(random_corpus(2000, seed=seed), 1000)
