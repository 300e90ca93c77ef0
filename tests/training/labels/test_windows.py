"""Sequences longer than `data.longest` are labeled in overlapping windows."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import saccade
from saccade.tasks.labeling import label_spans
from saccade.tasks.windows import windows
from training.labels.labeled_data import TAGGING


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10])
def test_each_position_is_taken_from_the_window_where_it_is_farthest_from_an_edge(size: int):
    for length in range(1, 45):
        parts = windows(length, size)
        assert [w.keep_from for w in parts] == [0, *(w.keep_to for w in parts[:-1])]
        assert parts[-1].keep_to == length
        for window in parts:
            assert 0 <= window.first <= window.keep_from < window.keep_to <= window.end <= length
            assert window.end - window.first == min(size, length)
            for position in range(window.keep_from, window.keep_to):
                distances = [min(position - w.first, w.end - 1 - position) for w in parts]  # to the nearest edge
                assert min(position - window.first, window.end - 1 - position) == max(distances), (length, position)
        for left, right in itertools.pairwise(parts):
            assert left.end - right.first >= size // 2, "neighbors overlap by less than half a window"
    assert windows(0, size) == []


@TAGGING
def test_labels_near_the_ends_of_a_long_sequence_are_those_of_one_window(trained_run: Path, kind: str):
    """A sequence of any length gets one label per step. The labels at its beginning and at its end are those of the
    first and the last window."""
    run = saccade.load(trained_run)
    longest = run.recipe.data.longest
    generator = np.random.default_rng(1)
    long = (
        generator.normal(size=(5 * longest + 3, 3))
        if kind == "frames"
        else [*generator.choice([*"abc"], 5 * longest + 3)]
    )
    [tags] = run.tag([long])
    assert len(tags) == len(long)
    beginning = run.tag([long[:longest]])[0]
    count = windows(len(long), longest)[0].keep_to
    assert tags[:count] == beginning[:count]
    end = run.tag([long[-longest:]])[0]
    count = len(long) - windows(len(long), longest)[-1].keep_from
    assert tags[-count:] == end[-count:]
    short = [run.tag([long[:length]])[0] for length in (1, longest)]
    assert [len(tags) for tags in short] == [1, longest]


def test_labels_do_not_depend_on_the_other_sequences_of_a_batch(trained_run: Path, kind: str):
    run = saccade.load(trained_run)
    generator = np.random.default_rng(2)
    lengths = (3, 0, 1, 30, 8)
    if run.reads_frames:
        items: Sequence[Any] = [generator.normal(size=(n, 3)) for n in lengths]
    else:
        items = [" ".join(generator.choice([*"abcz"], n)) for n in lengths]
    label: Callable[[Sequence[Any]], Sequence[Any]] = run.tag if kind in ("words", "frames") else run.classify
    assert [*label(items)] == [label([item])[0] for item in items]
    assert len(label(items)[1]) == 0  # the empty sequence
    assert label([]) == []


def test_consecutive_equal_labels_are_grouped():
    assert [*label_spans(["5", "5", "7", "5"])] == [("5", 0, 2), ("7", 2, 3), ("5", 3, 4)]
    assert [*label_spans([])] == []
