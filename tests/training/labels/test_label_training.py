"""Trainings of labeling tasks: resuming, validation, logged rates, and what the run contains."""

import json
import shutil
from pathlib import Path

import jaxtyping
import pytest

import saccade
from saccade.recipe import Recipe
from saccade.training.dry_run import dry_run
from saccade.training.loop import train
from saccade.training.progress import IntervalReport, Silent
from training.helpers import Contents, train_run
from training.labels.labeled_data import recipe_for


@pytest.mark.slow
@pytest.mark.parametrize("until", [3, 7, 11])
def test_resume_is_bit_exact_after_a_crash(
    until: int,
    kind: str,
    recipe: Recipe,
    trained_run: Path,
    folder: Path,
    contents: Contents,
):
    run = folder / f"labels-{kind}-{until}"
    train_run(recipe, run, until=until)
    assert contents(run) != contents(trained_run)
    train(recipe, run, Silent())
    assert contents(run) == contents(trained_run)


def test_best_by_auto_equals_the_metric_it_stands_for(trained_run: Path, recipe: Recipe, folder: Path):
    """A run started with `best_by = "auto"` resumes with the name of that metric, but not with another metric."""

    def by(name: str) -> Recipe:
        return recipe.model_copy(update={"train": recipe.train.model_copy(update={"best_by": name})})

    shutil.copytree(trained_run, folder / "labels-copy")
    try:
        train(by("accuracy"), folder / "labels-copy", Silent())
        with pytest.raises(saccade.RunError, match=r"train.best_by: 'accuracy' → 'macro_f1'"):
            train(by("macro_f1"), folder / "labels-copy", Silent())
    finally:
        shutil.rmtree(folder / "labels-copy")


def test_tensor_shapes_match_their_annotations(kind: str, tmp_path: Path):
    """The other tests of this folder run without shape checks."""
    recipe = recipe_for(tmp_path, kind, train={"updates": 2, "average": 0})
    jaxtyping.config.update("jaxtyping_disable", False)
    try:
        saccade.train(recipe, tmp_path / "run", report=Silent()).evaluate()
    finally:
        jaxtyping.config.update("jaxtyping_disable", True)


def test_validation_records_accuracy_and_readable_samples(kind: str, trained_run: Path):
    lines = (trained_run / "metrics.jsonl").read_text("utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if "validation" in record]
    assert [record["step"] for record in records] == [4, 8, 12, 14]
    assert all(set(record["validation"]) == {"loss", "accuracy", "macro_f1"} for record in records)
    accuracies = [record["validation"]["accuracy"] for record in records]
    best = saccade.load(trained_run, "best").checkpoint.name
    assert best == f"step-{records[accuracies.index(max(accuracies))]['step']:07d}"
    sample = records[-1]["samples"][0]
    if kind == "words":
        words = sample["source"].removesuffix(" …").split()
        assert [pair.split("/")[0] for pair in sample["output"].removesuffix(" …").split()] == words
    elif kind == "frames":
        assert sample["source"] == "dev.npz:dev_0"
        assert {pair.split("×")[0] for pair in sample["output"].split()} <= {"1", "2"}
    else:
        assert sample["reference"] in ({"same", "other"} if kind == "texts" else {"1", "2"})
        assert sample["output"] in ({"same", "other"} if kind == "texts" else {"1", "2"})


def test_logged_rates_and_padding_count_source_tokens_and_labels(kind: str, recipe: Recipe, tmp_path: Path):
    intervals: list[IntervalReport] = []

    class Recording(Silent):
        def interval(self, report: IntervalReport) -> None:
            intervals.append(report)

    train(recipe, tmp_path / "run", Recording())
    for report in intervals:
        assert 0 <= report.padding < 0.5
        ratio = report.target_tokens_per_second / report.source_tokens_per_second
        assert (0.8 < ratio < 1) if kind in ("words", "frames") else (ratio < 0.5)


def test_dry_run_estimates_the_cost(recipe: Recipe, tmp_path: Path):
    cost = dry_run(recipe, tmp_path / "run", Silent())
    assert cost.parameters > 0
    assert cost.epoch_seconds > 0
    assert not (tmp_path / "run").exists()


def test_run_contains_its_codecs(trained_run: Path, kind: str):
    names = {path.name for path in (trained_run / "codecs").iterdir()}
    source = "scaling.json" if kind in ("frames", "series") else "source.model"
    assert names == {"manifest.json", "labels.json", source}
    assert saccade.load(trained_run).codecs.target.names == {
        "words": ("new", "old"),
        "texts": ("other", "same"),
    }.get(kind, ("1", "2"))
