"""Measures of labels against cases worked out by hand, and against a naive count of every pair."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import DataError
from saccade.metrics.labels import Confusion

# true a: found a, a, b; true b: found b, c; true c: never; found d: never
BY_HAND = Confusion.of(["a", "a", "a", "b", "b"], ["a", "a", "b", "b", "c"], ["a", "b", "c", "d"])


def test_rows_are_true_and_columns_are_found():
    assert BY_HAND.labels == ("a", "b", "c", "d")
    assert BY_HAND.counts.tolist() == [[2, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_accuracy_by_hand():
    assert BY_HAND.accuracy() == pytest.approx(60)
    assert BY_HAND.accuracy(["a"]) == pytest.approx(200 / 3)
    assert BY_HAND.accuracy(["b", "c"]) == pytest.approx(50)
    assert BY_HAND.accuracy(["c"]) == 0


def test_precision_recall_and_f1_by_hand():
    each = BY_HAND.per_label()
    assert each["a"] == pytest.approx({"precision": 100, "recall": 200 / 3, "f1": 80, "count": 3})
    assert each["b"] == pytest.approx({"precision": 50, "recall": 50, "f1": 50, "count": 2})
    assert each["c"] == {"precision": 0, "recall": 0, "f1": 0, "count": 0}
    assert each["d"] == {"precision": 0, "recall": 0, "f1": 0, "count": 0}


def test_macro_f1_is_over_labels_that_occur_or_were_found():
    assert BY_HAND.macro_f1() == pytest.approx((80 + 50 + 0) / 3)
    assert BY_HAND.macro_f1(["a", "b"]) == pytest.approx(65)
    assert BY_HAND.macro_f1(["a", "d", "elsewhere"]) == pytest.approx(80)
    assert BY_HAND.macro_f1(["d"]) == 0


def test_nothing_scores_nothing():
    empty = Confusion.of([], [])
    assert (empty.accuracy(), empty.macro_f1(), empty.per_label()) == (0, 0, {})
    assert empty.lines() == ["no labels"]
    assert Confusion.of([], [], ["a"]).macro_f1() == 0


def test_steps_without_a_true_label_are_left_out():
    confusion = Confusion.of(["", "a", ""], ["a", "a", "b"])
    assert confusion.labels == ("a",)
    assert confusion.accuracy() == 100


def test_a_label_not_found_at_all_is_wrong():
    assert Confusion.of(["a", "a"], ["", "a"]).accuracy() == 50


def test_numbers_are_sorted_by_size():
    assert Confusion.of(["10", "9", "b", "2", "-1", "a"], ["1"] * 6).labels == ("1", "2", "9", "10", "-1", "a", "b")


def test_unequal_lengths_unknown_and_repeated_labels_are_refused():
    with pytest.raises(DataError, match="2 labels cannot be measured by 1 true ones"):
        Confusion.of(["a"], ["a", "b"])
    with pytest.raises(DataError, match="label 'z' is not among the labels that are measured: a, b"):
        Confusion.of(["a"], ["z"], ["a", "b"])
    with pytest.raises(DataError, match="a label stands twice among a, b, a"):
        Confusion.of(["a"], ["b"], ["a", "b", "a"])


def test_plain_is_json():
    plain = BY_HAND.plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["accuracy"] == pytest.approx(60)
    assert plain["confusion"][0] == [2, 1, 0, 0]


def test_the_table():
    assert BY_HAND.lines() == [
        "true \\ found  1  2  3  4",
        " 1 a          2  1  .  .",
        " 2 b          .  1  1  .",
        " 3 c          .  .  .  .",
        " 4 d          .  .  .  .",
    ]


def test_the_table_folds_columns_and_leaves_out_rare_labels():
    names = [f"the label number {i:02}" for i in range(40)]
    true = [name for i, name in enumerate(names) for _ in range(1000 if i >= 10 else 1)]
    lines = Confusion.of(true, true).lines(width=80)
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "... and 10 more labels"
    heads = [line for line in lines if line.startswith("true")]
    assert " ".join(head.split("found")[1] for head in heads).split() == [str(n) for n in range(1, 31)]
    assert sum(line.count(" 1000") for line in lines) == 30
    assert not any("number 09" in line for line in lines)


def test_a_narrow_terminal_and_strange_labels():
    lines = Confusion.of(["a\nb", "x" * 50], ["a\nb", "x" * 50]).lines(width=1)
    assert not any("\n" in line for line in lines)
    assert any("'a\\nb'" in line for line in lines)
    assert any(line.startswith(" 2 " + "x" * 19 + "…") for line in lines)


LABELS = st.sampled_from(["a", "b", "c", "NOUN", "12", "3"])
PAIRS = st.lists(st.tuples(LABELS, LABELS), max_size=40)


def naive_f1(pairs: list[tuple[str, str]], label: str) -> float:
    found = [t == label for t, f in pairs if f == label]
    occurs = [f == label for t, f in pairs if t == label]
    precision = sum(found) / len(found) if found else 0.0
    recall = sum(occurs) / len(occurs) if occurs else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@settings(max_examples=200, deadline=None)
@given(pairs=PAIRS, over=st.lists(LABELS, max_size=3))
def test_against_a_naive_count(pairs: list[tuple[str, str]], over: list[str]):
    confusion = Confusion.of([t for t, _ in pairs], [f for _, f in pairs])
    counted = [(t, f) for t, f in pairs if not over or t in over]
    right = sum(t == f for t, f in counted)
    assert confusion.accuracy(over) == pytest.approx(100 * right / len(counted) if counted else 0)
    seen = {label for pair in pairs for label in pair}
    scores = [naive_f1(pairs, label) for label in seen if not over or label in over]
    assert confusion.macro_f1(over) == pytest.approx(100 * sum(scores) / len(scores) if scores else 0)
    for label, each in confusion.per_label().items():
        assert each["f1"] == pytest.approx(100 * naive_f1(pairs, label))
        assert each["count"] == sum(t == label for t, _ in pairs)


@settings(max_examples=50, deadline=None)
@given(pairs=PAIRS, order=st.permutations(["a", "b", "c", "NOUN", "12", "3"]))
def test_measures_do_not_depend_on_the_order_of_labels(pairs: list[tuple[str, str]], order: list[str]):
    true, found = [t for t, _ in pairs], [f for _, f in pairs]
    free, fixed = Confusion.of(true, found), Confusion.of(true, found, order)
    assert (fixed.accuracy(), fixed.macro_f1()) == pytest.approx((free.accuracy(), free.macro_f1()))
    assert np.array_equal(fixed.counts.sum(), len(pairs))
