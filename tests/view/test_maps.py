"""Attention maps: merging pieces into words, averaging, and invalid input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import SaccadeError
from saccade.view.maps import AttentionMap, AttentionMaps, Axis


def plain(*labels: str) -> Axis:
    return Axis(labels, tuple(range(len(labels))))


def sample() -> AttentionMaps:
    source = Axis(("Haus", "tür", "</s>"), (0, 0, 1))
    target = Axis(("front", "do", "or", "</s>"), (0, 1, 1, 2))
    weights = np.array([[[0.5, 0.25, 0.25], [0.2, 0.6, 0.2], [0.4, 0.4, 0.2], [0.0, 0.0, 1.0]]], dtype=np.float32)
    return AttentionMaps(
        "Haustür", "front door", {"decoder.layers.0.cross": AttentionMap(weights, target, source, "cross")}
    )


@st.composite
def axes(draw: st.DrawFn, min_words: int = 0) -> Axis:
    sizes = draw(st.lists(st.integers(1, 4), min_size=min_words, max_size=5))
    words = tuple(word for word, size in enumerate(sizes) for _ in range(size))
    labels = tuple(draw(st.text(max_size=3)) for _ in words)
    return Axis(labels, words)


@st.composite
def attention_maps(draw: st.DrawFn, min_words: int = 1) -> AttentionMap:
    rows, columns, heads = draw(axes(min_words)), draw(axes(min_words)), draw(st.integers(1, 3))
    noise = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).random((heads, len(rows), len(columns)))
    weights = noise / noise.sum(axis=-1, keepdims=True) if len(columns) else noise
    return AttentionMap(weights.astype(np.float32), rows, columns, "cross")


def test_merging_sums_over_key_pieces_and_averages_over_query_pieces() -> None:
    merged = sample().words()["decoder.layers.0.cross"]
    assert merged.columns == Axis(("Haustür", "</s>"), (0, 1))
    assert merged.rows == Axis(("front", "door", "</s>"), (0, 1, 2))
    np.testing.assert_allclose(merged.weights, [[[0.75, 0.25], [0.8, 0.2], [0.0, 1.0]]], rtol=1e-6)
    assert merged.weights.dtype == np.float32


@given(attention_maps())
def test_rows_of_merged_maps_sum_to_one(original: AttentionMap) -> None:
    np.testing.assert_allclose(original.words().weights.sum(axis=-1), 1, atol=1e-5)


@given(attention_maps(min_words=0))
def test_merging_is_idempotent(original: AttentionMap) -> None:
    once = original.words()
    twice = once.words()
    assert (twice.rows, twice.columns) == (once.rows, once.columns)
    np.testing.assert_array_equal(twice.weights, once.weights)


@given(axes())
def test_merged_labels_keep_the_text(axis: Axis) -> None:
    assert "".join(axis.merged().labels) == "".join(axis.labels)
    assert len(axis.merged()) == len(set(axis.words))


def test_a_row_of_zeros_stays_zero() -> None:
    zeros = AttentionMap(
        np.zeros((2, 2, 3), np.float32), Axis(("a", "b"), (0, 0)), Axis(("c", "d", "e"), (0, 0, 1)), "cross"
    )
    np.testing.assert_array_equal(zeros.words().weights, np.zeros((2, 1, 2)))


def test_mean_averages_the_layers_and_heads_of_one_kind() -> None:
    rows, columns = plain("a"), plain("b", "c")
    first = AttentionMap(np.array([[[1, 0]], [[0.5, 0.5]]], np.float32), rows, columns, "cross")
    second = AttentionMap(np.array([[[0, 1]], [[0.1, 0.9]]], np.float32), rows, columns, "cross")
    other = AttentionMap(np.ones((2, 2, 2), np.float32), columns, columns, "encoder")
    mean = AttentionMaps("b c", "a", {"one": first, "two": second, "three": other}).mean()
    assert mean.weights.shape == (1, 1, 2)
    np.testing.assert_allclose(mean.weights, [[[0.4, 0.6]]], rtol=1e-6)
    assert (mean.kind, mean.rows, mean.columns) == ("cross", rows, columns)


def test_mean_of_a_missing_kind_names_the_available_kinds() -> None:
    with pytest.raises(SaccadeError, match=r"'encoder'.*available kinds: cross"):
        sample().mean("encoder")


def test_mean_rejects_layers_of_different_sizes() -> None:
    maps = {
        str(size): AttentionMap(np.ones((1, size, 1), np.float32), plain(*"abc"[:size]), plain("x"), "cross")
        for size in (1, 2)
    }
    with pytest.raises(SaccadeError, match="differs in size"):
        AttentionMaps("", "", maps).mean()


def test_attention_maps_are_a_mapping_by_module_name() -> None:
    maps = sample()
    assert list(maps) == ["decoder.layers.0.cross"]
    assert len(maps) == 1
    assert "decoder.layers.0.cross" in maps
    with pytest.raises(KeyError, match=r"decoder\.layers\.0\.cross"):
        maps["decoder.layers.9.cross"]


@pytest.mark.parametrize(
    ("labels", "words", "message"),
    [
        (("a",), (0, 1), "1 labels but 2"),
        (("a",), (1,), "start at 0"),
        (("a", "b", "c"), (0, 1, 0), "must not decrease"),
    ],
)
def test_axis_rejects_inconsistent_word_indices(labels: tuple[str, ...], words: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Axis(labels, words)


def test_map_rejects_weights_that_do_not_fit_its_axes_and_unknown_kinds() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        AttentionMap(np.zeros((1, 2, 1), np.float32), plain("a"), plain("b"), "cross")
    with pytest.raises(ValueError, match="unknown kind"):
        AttentionMap(np.zeros((1, 1, 1), np.float32), plain("a"), plain("b"), "sideways")
