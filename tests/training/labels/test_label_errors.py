"""Labels, groups and settings that do not fit a labeling task are refused with their location or config key."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import saccade
from saccade.errors import DataError
from saccade.recipe import check_buildable
from saccade.training.loop import train
from saccade.training.progress import Silent
from training.helpers import Recorder
from training.labels.labeled_data import labeled_series, recipe_for, write_data


def add_unknown_label(folder: Path, kind: str, split: str) -> str:
    """Add a label to a split that does not occur in training, and return its location."""
    if kind in ("words", "texts"):
        path = folder / f"{split}.txt"
        lines = path.read_text("utf-8").count("\n")
        path.write_text(path.read_text("utf-8") + ("a\tstrange\n\n" if kind == "words" else "strange a\n"), "utf-8")
        return f"{split}.txt:{lines + 1}"
    path = folder / f"{split}.npz"
    arrays: dict[str, Any] = dict(np.load(path))
    arrays[f"{split}_1_y"] = np.full_like(arrays[f"{split}_1_y"], 9)
    np.savez(path, **arrays)
    return f"{split}.npz:{split}_1"


@pytest.mark.parametrize("split", ["dev", "test"])
def test_label_unknown_from_training_is_an_error_or_left_out_with_skip_bad(split: str, kind: str, tmp_path: Path):
    recipe = recipe_for(tmp_path, kind, train={"updates": 1})
    location = add_unknown_label(tmp_path, kind, split)
    label = "strange" if kind in ("words", "texts") else "9"
    with pytest.raises(DataError) as error:
        train(recipe, tmp_path / "run", Silent())
    assert str(error.value).startswith(f"{location}: the label '{label}' does not occur in the training data (known: ")
    report = Recorder()
    tolerant = recipe.model_copy(update={"data": recipe.data.model_copy(update={"skip_bad": True})})
    run = saccade.train(tolerant, tmp_path / "run", report=report)
    summary = next(text for text in report.messages if "to train on" in text)
    # the unknown label was added in a sixth row for words and texts, and in one of the five rows for series
    kept = 4 if split == "dev" and kind in ("frames", "series") else 5
    assert f"{kept} to validate on (left out: {int(split == 'dev')} in bad rows)" in summary
    assert run.evaluate()["left_out"] == int(split == "test")


def test_group_in_two_splits_is_refused_before_training(tmp_path: Path):
    recipe = recipe_for(tmp_path, "frames")
    np.savez(tmp_path / "test.npz", **labeled_series(np.random.default_rng(1), 2, "train", False))
    with pytest.raises(DataError, match=r"group train is in data.train and data.test"):
        train(recipe, tmp_path / "run", Silent())
    assert not (tmp_path / "run" / "config.toml").exists()


LEARNED = {"kind": "learned", "longest": 19}
MISFITS: dict[str, tuple[str, dict[str, Any], str]] = {
    "pairs for tagging": (
        "words",
        {"data": {"dev": {"kind": "pairs", "src": "a", "tgt": "b"}}},
        "data.dev: the task 'tagging' needs a label for each word or each frame, which the source 'pairs' does not "
        "provide; use one of columns, series",
    ),
    "columns for classification": (
        "texts",
        {"data": {"train": {"kind": "columns", "file": "train.txt"}}},
        "data.train: the task 'classification' needs one label for each text or series, which the source 'columns' "
        "does not provide; use one of pairs, tsv, jsonl, labeled, series",
    ),
    "columns for translation": (
        "words",
        {"task": "translation"},
        "data.train: the task 'translation' needs pairs of texts, which the source 'columns' does not provide",
    ),
    "a metric of another task": (
        "words",
        {"train": {"best_by": "bleu"}},
        "train.best_by: the task 'tagging' has no metric 'bleu' (known: auto, loss, accuracy, macro_f1)",
    ),
    "a tied head without a decoder": (
        "words",
        {"model": {"head": "tied"}},
        'model.head: "tied" needs an embedding of each token or label that it predicts',
    ),
    "a decoder in a labeling task": (
        "words",
        {"model": {"decoder": {"depth": 2}}},
        "model.decoder: has no effect, because the task predicts labels from the encoder; set model.decoder",
    ),
    "a summary that nothing reads": (
        "words",
        {"model": {"encoder": {"pool": "max"}}},
        "model.encoder.pool: has no effect, because nothing in this model uses it; leave it out",
    ),
    "token embedding of series": (
        "frames",
        {"model": {"encoder": {"embedding": "tokens"}}},
        'model.encoder.embedding: "tokens" is for text, but the data has numeric series; use "series"',
    ),
    "series embedding of words": (
        "words",
        {"model": {"encoder": {"embedding": "series"}}},
        'model.encoder.embedding: "series" is for numeric series, but the data is text; use "tokens"',
    ),
    "batches smaller than a sentence": (
        "words",
        {"train": {"batch_tokens": 19}},
        "train.batch_tokens: 19 is less than the longest row, which takes 20 positions with data.longest = 20; raise",
    ),
    "too few positions": (
        "words",
        {"model": {"encoder": {"position": LEARNED}}},
        "model.encoder.position.longest: 19 positions cannot hold the longest row, which takes 20 with "
        "data.longest = 20; raise",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_setting_that_does_not_fit_the_task_is_refused_by_key(case: str, tmp_path: Path):
    kind, changes, message = MISFITS[case]
    with pytest.raises(saccade.ConfigError) as error:
        recipe_for(tmp_path, kind, **changes)
    assert message in str(error.value)


def test_smallest_fitting_settings_are_accepted(tmp_path: Path):
    position = {"kind": "learned", "longest": 20}
    changes = {"train": {"batch_tokens": 20}, "model": {"encoder": {"position": position}}}
    check_buildable(recipe_for(tmp_path, "words", **changes))
    separate_vocabularies = recipe_for(tmp_path, "words", data={"joint": False})
    check_buildable(separate_vocabularies)  # although embeddings are shared, which has no effect without a decoder


def test_rows_of_another_task_are_refused_with_their_location(tmp_path: Path):
    write_data(tmp_path, "series")
    recipe = recipe_for(tmp_path, "series", task="tagging")
    with pytest.raises(DataError, match=r"data.train: train.npz:train_0: the task needs a label for each word or each"):
        train(recipe, tmp_path / "run", Silent())


def test_text_in_a_split_of_a_series_run_is_refused(tmp_path: Path):
    write_data(tmp_path, "words")
    recipe = recipe_for(tmp_path, "frames", data={"dev": {"kind": "columns", "file": "dev.txt"}})
    (tmp_path / "dev.txt").write_text("a\t1\n\n", "utf-8")
    with pytest.raises(DataError, match=r"dev.txt:1: is text, but the run was trained on numeric series"):
        train(recipe, tmp_path / "run", Silent())
