"""Why trainings stop, which checkpoints are kept, and warnings of results that will not be bit-exact."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import saccade
from saccade.recipe import Recipe
from saccade.runs.folder import RunFolder
from saccade.tasks.task import Validation, ValidationSample
from saccade.tasks.translation import Translation
from training.helpers import checkpoint, edit_manifest, log_records, saved_steps, train_run


def test_resume_with_another_number_of_threads_warns(run: Path, recipe: Recipe):
    torch.set_num_threads(2)
    try:
        report = train_run(recipe, run)
    finally:
        torch.set_num_threads(1)
    assert report.warnings == ["warning: the result will not be bit-exact: threads changed from 1 to 2"]


def test_resume_with_another_torch_version_warns(run: Path, recipe: Recipe):
    edit_manifest(checkpoint(run, 18), lambda manifest: manifest.update(torch="1.0"))
    assert train_run(recipe, run).warnings == [
        f"warning: the result will not be bit-exact: torch changed from 1.0 to {torch.__version__}"
    ]


def test_unchanged_resume_does_not_warn(run: Path, recipe: Recipe):
    report = train_run(recipe, run)
    assert report.warnings == []
    assert report.validations == [24]


def fix_scores(patch: pytest.MonkeyPatch, scores: Sequence[float]) -> None:
    """Let the validations give these scores, whatever the model does."""
    remaining = iter(scores)

    def validate(*_: Any) -> Validation:
        score = float(next(remaining))
        return Validation(
            dict.fromkeys(("loss", "bleu", "chrf", "exact_match"), score), (ValidationSample("a", "b", "c"),)
        )

    patch.setattr(Translation, "validate", validate)


@pytest.mark.parametrize(
    ("flags", "scores", "stop", "reason"),
    [
        (["train.updates=10"], [4, 3], 10, "train.updates is reached"),
        (["train.patience=2"], [4, 3, 3, 5], 24, "loss did not improve in train.patience = 2 validations"),
        (["train.patience=1"], [4, 3, 2, 1], 24, "train.updates is reached"),
        (
            ["train.patience=2", "train.best_by=bleu"],
            [4, 3, 3],
            18,
            "BLEU did not improve in train.patience = 2 validations",
        ),
        (["train.stop_at=3.0"], [4, 3], 12, "loss reached train.stop_at = 3"),
        (["train.stop_at=3.0", "train.best_by=chrf"], [1, 2, 3], 18, "chrF reached train.stop_at = 3"),
        (["train.minutes=1e-9"], [4], 1, "train.minutes = 1e-09 is reached"),
    ],
)
def test_training_stops_at_its_first_stop_reason(
    flags: list[str],
    scores: list[float],
    stop: int,
    reason: str,
    tmp_path: Path,
    recipe_with: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
):
    fix_scores(monkeypatch, scores)
    report = train_run(recipe_with("train.average=0", *flags), tmp_path / "run")
    assert report.messages[-1] == f"stopped after {stop} updates: {reason}"
    assert max(saved_steps(tmp_path / "run")) == stop
    assert report.validations[-1] == stop  # the last checkpoint was validated


@pytest.mark.slow
@pytest.mark.parametrize(
    ("best_by", "scores", "keep", "kept", "best"),
    [
        ("bleu", [10, 50, 20, 30], 1, [12, 24], 12),
        ("bleu", [60, 50, 20, 30], 2, [6, 18, 24], 6),
        ("bleu", [10, 10, 10, 10], 3, [6, 12, 18, 24], 6),  # an equal score is not better
        ("loss", [4, 3, 2, 1], 1, [24], 24),
        ("loss", [1, 2, 3, 4], 9, [6, 12, 18, 24], 6),
    ],
)
def test_last_checkpoints_and_the_best_one_are_kept(
    best_by: str,
    scores: list[float],
    keep: int,
    kept: list[int],
    best: int,
    tmp_path: Path,
    recipe_with: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
):
    fix_scores(monkeypatch, scores)
    run = tmp_path / "run"
    train_run(recipe_with(f"train.best_by={best_by}", f"train.keep={keep}", "train.average=0"), run)
    assert saved_steps(run) == kept
    checkpoints = RunFolder(run).checkpoints
    assert checkpoints.find("best") == checkpoints.find("auto") == checkpoints.at(best)
    assert checkpoints.find("latest") == checkpoints.at(24)
    assert not (run / "checkpoints" / "average").exists()
    assert [record["best"] for record in log_records(run, "validation")].count(True) >= 1


def test_average_is_the_mean_of_the_last_weights(finished_run: Path):
    last = [load_file(checkpoint(finished_run, number) / "weights.safetensors") for number in (12, 18, 24)]
    average = load_file(finished_run / "checkpoints" / "average" / "weights.safetensors")
    assert average.keys() == last[0].keys()
    for name, tensor in average.items():
        mean = torch.stack([weights[name].double() for weights in last]).mean(0)
        assert torch.allclose(tensor.double(), mean, rtol=1e-7, atol=1e-12), name
        assert not torch.equal(tensor, last[-1][name]), name
    assert saccade.load(finished_run).checkpoint.name == "average"
    assert json.loads((finished_run / "checkpoints/average/manifest.json").read_bytes())["averaged"] == [12, 18, 24]


def test_run_with_one_checkpoint_has_no_average(tmp_path: Path, recipe_with: Callable[..., Recipe]):
    train_run(recipe_with("train.updates=6"), tmp_path / "run")
    assert saccade.load(tmp_path / "run").checkpoint.name == "step-0000006"
