"""Using a run of a labeling task: `tag`, `classify`, `probabilities` and `evaluate`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import saccade
from saccade.errors import DataError


def test_methods_of_other_tasks_are_refused_with_the_right_command(trained_run: Path, kind: str):
    run = saccade.load(trained_run)
    tags = kind in ("words", "frames")
    command = "tag" if tags else "classify"
    other = run.classify if tags else run.tag
    for call in (lambda: run.translate(["a"]), lambda: run.score([("a", "b")]), lambda: other([])):
        with pytest.raises(saccade.RunError, match=f"use this one with `saccade {command}`, or Run.{command}"):
            call()
    with pytest.raises(saccade.RunError, match="attention can be shown for translation runs only"):
        run.attention("a")


def test_evaluation_equals_scoring_the_output_of_tag_or_classify(trained_run: Path, kind: str):
    run = saccade.load(trained_run)
    rows = run.test_rows()
    scores = run.evaluate()
    if kind in ("words", "frames"):
        predicted = run.tag([row.source for row in rows])
        labels = [
            pair for row, tags in zip(rows, predicted, strict=True) for pair in zip(row.target, tags, strict=True)
        ]
    else:
        labels = [*zip([row.target for row in rows], run.classify([row.source for row in rows]), strict=True)]
    labels = [(true, predicted) for true, predicted in labels if true]
    assert scores["accuracy"] == pytest.approx(100 * np.mean([true == predicted for true, predicted in labels]))
    assert scores["count"] == sum(map(sum, scores["confusion"])) == len(labels)
    assert scores["checkpoint"] == "average"
    again = run.evaluate([(row.source, row.target) for row in rows])
    assert again == scores
    label = run.codecs.target.names[0]
    subset = run.evaluate(labels=[label])
    of_label = [(true, predicted) for true, predicted in labels if true == label]
    assert subset["count"] == len(of_label)
    assert subset["accuracy"] == pytest.approx(100 * np.mean([true == predicted for true, predicted in of_label]))
    with pytest.raises(DataError, match="labels: there is no label 'none'"):
        run.evaluate(labels=["none"])


@pytest.mark.parametrize("kind", ["words"], indirect=True)
def test_tag_accepts_text_and_lists_of_words(trained_run: Path):
    run = saccade.load(trained_run)
    assert run.tag(["a b  a"]) == run.tag([["a", "b", "a"]]) == run.tag([("a", "b", "a")])
    with pytest.raises(DataError, match="sequence 2: is not text"):
        run.tag(["a", np.zeros((2, 3))])


@pytest.mark.parametrize("kind", ["words"], indirect=True)
def test_words_and_labels_of_different_number_are_refused(trained_run: Path):
    with pytest.raises(DataError, match="pair 1: has 2 words or frames but 1 label; give each"):
        saccade.load(trained_run).evaluate([("a b", "new")])


@pytest.mark.parametrize("kind", ["texts"], indirect=True)
def test_probabilities_sum_to_one_and_are_empty_for_empty_text(trained_run: Path):
    run = saccade.load(trained_run)
    [probabilities] = run.probabilities(["a b a"])
    assert sum(probabilities.values()) == pytest.approx(1)
    assert run.classify(["a b a", ""]) == [max(probabilities, key=lambda label: probabilities[label]), ""]
    assert run.probabilities([""]) == [{}]


@pytest.mark.parametrize("kind", ["frames", "series"], indirect=True)
def test_series_of_another_width_is_refused(kind: str, trained_run: Path):
    run = saccade.load(trained_run)
    label: Any = run.tag if kind == "frames" else run.classify
    with pytest.raises(DataError, match="has shape"):
        label([np.zeros((2, 2))])
