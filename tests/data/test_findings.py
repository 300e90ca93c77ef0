"""The statistics of `data check` equal their plain definitions, and take little memory."""

from array import array
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data import findings
from saccade.data.findings import find_duplicates, find_overlap, lengths_of

HASHES = st.lists(st.sampled_from([0, 1, 2, 3, 7, 2**64 - 1]), max_size=12)
few_examples = settings(max_examples=80, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "_HASHES_COMPARED", 3)
        yield


@given(HASHES)
@few_examples
def test_duplicates_are_rows_that_repeat_an_earlier_row(hashes: list[int]) -> None:
    repeated = [(row, hashes.index(value)) for row, value in enumerate(hashes) if hashes.index(value) < row]
    found = find_duplicates(array("Q", hashes), str)
    assert found.count == len(repeated)
    assert found.first == [f"{row}: repeats {first}" for row, first in repeated[:3]]


@given(HASHES, HASHES)
@few_examples
def test_overlap_names_the_first_row_of_train(hashes: list[int], train: list[int]) -> None:
    shared = [(row, train.index(value)) for row, value in enumerate(hashes) if value in train]
    found = find_overlap("pair", array("Q", hashes), str, array("Q", train), str)
    assert found.count == len(shared)
    assert found.first == [f"{row}: the pair is also in train, at {first}" for row, first in shared[:3]]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40))
@few_examples
def test_lengths_equal_those_of_numpy(values: list[int]) -> None:
    lengths = lengths_of(Counter(values))
    median, p95 = np.percentile(values, [50, 95])
    assert (lengths.smallest, lengths.largest, lengths.median) == (min(values), max(values), median)
    assert lengths.mean == np.mean(values)
    assert lengths.p95 == pytest.approx(p95, rel=1e-12)
    assert sum(lengths.histogram.values()) == len(values)
