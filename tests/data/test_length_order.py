"""The vectorized order of an epoch equals the plain definition, bit by bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data import length_order
from saccade.data.batches import COLLATE_LABELS, COLLATE_PAIRS, COLLATE_PROMPTED, Collate, Corpus, by_length
from saccade.data.length_order import shuffled_rows, sorted_by_length

SIZES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60)


def batches_row_by_row(corpus: Corpus, order: np.ndarray, tokens: int) -> list[list[int]]:
    """The definition: sort stably by source and target length; start a new batch when a row does not fit."""
    order = order[np.lexsort((corpus.target_lengths[order], corpus.source_lengths[order]))]
    batches: list[list[int]] = []
    widest = 0
    for row in order.tolist():
        length = int(corpus.lengths[row])
        if not batches or (len(batches[-1]) + 1) * max(widest, length) > tokens:
            batches.append([])
            widest = 0
        batches[-1].append(row)
        widest = max(widest, length)
    return batches


@pytest.mark.parametrize("collate", [COLLATE_PAIRS, COLLATE_PROMPTED, COLLATE_LABELS])
@given(sizes=SIZES, tokens=st.integers(1, 60), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_batches_equal_the_greedy_definition(
    collate: Collate, sizes: list[tuple[int, int]], tokens: int, seed: int
) -> None:
    corpus = Corpus([[4] * source for source, _ in sizes], [[5] * target for _, target in sizes], collate)
    order = np.random.default_rng(seed).permutation(len(sizes))
    expected = batches_row_by_row(corpus, order, tokens)
    assert [batch.tolist() for batch in by_length(corpus, order, tokens)] == expected


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 3)), max_size=30), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_sort_equals_lexsort_in_chunks_and_for_lengths_too_long_for_one_integer(
    sizes: list[tuple[int, int]], chunk: int
) -> None:
    first, second = np.array(sizes, dtype=np.int32).reshape(-1, 2).T
    order = np.random.default_rng(0).permutation(len(sizes))
    expected = order[np.lexsort((second[order], first[order]))].tolist()
    for limit in (length_order.MAX_SORT_KEY, 10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(length_order, "CHUNK_ROWS", chunk)
            patch.setattr(length_order, "MAX_SORT_KEY", limit)
            assert sorted_by_length(order, first, second).tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000, 70_001])
def test_shuffled_rows_are_the_permutation_of_the_generator(count: int) -> None:
    rows, permutation = np.random.default_rng([3, 5]), np.random.default_rng([3, 5])
    assert shuffled_rows(count, rows).tolist() == permutation.permutation(count).tolist()
    assert rows.integers(2**60) == permutation.integers(2**60), "the next draws differ"
