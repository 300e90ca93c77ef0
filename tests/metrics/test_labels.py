"""Label metrics: a small example, and comparison with a naive implementation."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import DataError
from saccade.metrics.labels import Confusion

# true a: predicted a, a, b; true b: predicted b, c; c is never true; d is never true nor predicted
EXAMPLE = Confusion.of(["a", "a", "a", "b", "b"], ["a", "a", "b", "b", "c"], ["a", "b", "c", "d"])


def test_rows_are_true_and_columns_are_predicted_labels():
    assert EXAMPLE.labels == ("a", "b", "c", "d")
    assert EXAMPLE.counts.tolist() == [[2, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_accuracy_of_the_example():
    assert EXAMPLE.accuracy() == pytest.approx(60)
    assert EXAMPLE.accuracy(["a"]) == pytest.approx(200 / 3)
    assert EXAMPLE.accuracy(["b", "c"]) == pytest.approx(50)
    assert EXAMPLE.accuracy(["c"]) == 0


def test_precision_recall_and_f1_of_the_example():
    scores = EXAMPLE.per_label()
    assert scores["a"] == pytest.approx({"precision": 100, "recall": 200 / 3, "f1": 80, "count": 3})
    assert scores["b"] == pytest.approx({"precision": 50, "recall": 50, "f1": 50, "count": 2})
    assert scores["c"] == {"precision": 0, "recall": 0, "f1": 0, "count": 0}
    assert scores["d"] == {"precision": 0, "recall": 0, "f1": 0, "count": 0}


def test_macro_f1_is_over_labels_that_occur_or_are_predicted():
    assert EXAMPLE.macro_f1() == pytest.approx((80 + 50 + 0) / 3)
    assert EXAMPLE.macro_f1(["a", "b"]) == pytest.approx(65)
    assert EXAMPLE.macro_f1(["a", "d", "elsewhere"]) == pytest.approx(80)
    assert EXAMPLE.macro_f1(["d"]) == 0


def test_scores_without_rows_are_0():
    empty = Confusion.of([], [])
    assert (empty.accuracy(), empty.macro_f1(), empty.per_label()) == (0, 0, {})
    assert empty.lines() == ["no labels"]
    assert Confusion.of([], [], ["a"]).macro_f1() == 0


def test_unlabeled_rows_are_left_out():
    confusion = Confusion.of(["", "a", ""], ["a", "a", "b"])
    assert confusion.labels == ("a",)
    assert confusion.accuracy() == 100


def test_missing_prediction_is_wrong():
    assert Confusion.of(["a", "a"], ["", "a"]).accuracy() == 50


def test_numeric_labels_are_sorted_by_value():
    assert Confusion.of(["10", "9", "b", "2", "-1", "a"], ["1"] * 6).labels == ("1", "2", "9", "10", "-1", "a", "b")


def test_unequal_lengths_and_unknown_or_duplicate_labels_are_errors():
    with pytest.raises(DataError, match="there are 2 predicted labels, but 1 true label"):
        Confusion.of(["a"], ["a", "b"])
    with pytest.raises(DataError, match="label 'z' is not one of the listed labels: a, b"):
        Confusion.of(["a"], ["z"], ["a", "b"])
    with pytest.raises(DataError, match="a label is listed twice: a, b, a"):
        Confusion.of(["a"], ["b"], ["a", "b", "a"])


def test_plain_survives_json():
    plain = EXAMPLE.plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["accuracy"] == pytest.approx(60)
    assert plain["confusion"][0] == [2, 1, 0, 0]


def test_table_of_the_example():
    assert EXAMPLE.lines() == [
        "true \\ predicted  1  2  3  4",
        " 1 a              2  1  .  .",
        " 2 b              .  1  1  .",
        " 3 c              .  .  .  .",
        " 4 d              .  .  .  .",
    ]


def test_table_wraps_columns_and_leaves_out_rare_labels():
    names = [f"the label number {i:02}" for i in range(40)]
    true = [name for i, name in enumerate(names) for _ in range(1000 if i >= 10 else 1)]
    lines = Confusion.of(true, true).lines(width=80)
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "... and 10 more labels"
    headers = [line for line in lines if line.startswith("true")]
    assert " ".join(header.split("predicted")[1] for header in headers).split() == [str(n) for n in range(1, 31)]
    assert sum(line.count(" 1000") for line in lines) == 30
    assert not any("number 09" in line for line in lines)


def test_table_in_a_narrow_terminal_with_unusual_labels():
    lines = Confusion.of(["a\nb", "x" * 50], ["a\nb", "x" * 50]).lines(width=1)
    assert not any("\n" in line for line in lines)
    assert any("'a\\nb'" in line for line in lines)
    assert any(line.startswith(" 2 " + "x" * 19 + "…") for line in lines)


LABELS = st.sampled_from(["a", "b", "c", "NOUN", "12", "3"])
PAIRS = st.lists(st.tuples(LABELS, LABELS), max_size=40)


def naive_f1(pairs: list[tuple[str, str]], label: str) -> float:
    """`pairs` are (true, predicted) labels."""
    predicted = [t == label for t, p in pairs if p == label]
    true = [p == label for t, p in pairs if t == label]
    precision = sum(predicted) / len(predicted) if predicted else 0.0
    recall = sum(true) / len(true) if true else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@settings(max_examples=200, deadline=None)
@given(pairs=PAIRS, only_labels=st.lists(LABELS, max_size=3))
def test_scores_equal_a_naive_implementation(pairs: list[tuple[str, str]], only_labels: list[str]):
    confusion = Confusion.of([t for t, _ in pairs], [p for _, p in pairs])
    counted = [(t, p) for t, p in pairs if not only_labels or t in only_labels]
    correct = sum(t == p for t, p in counted)
    assert confusion.accuracy(only_labels) == pytest.approx(100 * correct / len(counted) if counted else 0)
    occurring = {label for pair in pairs for label in pair}
    scores = [naive_f1(pairs, label) for label in occurring if not only_labels or label in only_labels]
    assert confusion.macro_f1(only_labels) == pytest.approx(100 * sum(scores) / len(scores) if scores else 0)
    for label, label_scores in confusion.per_label().items():
        assert label_scores["f1"] == pytest.approx(100 * naive_f1(pairs, label))
        assert label_scores["count"] == sum(t == label for t, _ in pairs)


@settings(max_examples=50, deadline=None)
@given(pairs=PAIRS, order=st.permutations(["a", "b", "c", "NOUN", "12", "3"]))
def test_scores_do_not_depend_on_the_label_order(pairs: list[tuple[str, str]], order: list[str]):
    true, predicted = [t for t, _ in pairs], [p for _, p in pairs]
    free, fixed = Confusion.of(true, predicted), Confusion.of(true, predicted, order)
    assert (fixed.accuracy(), fixed.macro_f1()) == pytest.approx((free.accuracy(), free.macro_f1()))
    assert np.array_equal(fixed.counts.sum(), len(pairs))
