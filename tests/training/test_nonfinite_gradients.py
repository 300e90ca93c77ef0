"""Updates with NaN or infinite gradients are skipped and counted; too many in a row stop the training."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from saccade.errors import RunError
from saccade.recipe import Recipe
from saccade.tasks.losses import Loss
from saccade.tasks.translation import Translation
from saccade.training import loop
from saccade.training.loop import train
from training.helpers import Contents, Recorder, checkpoint, log_records, saved_steps, train_run


def spoil_losses(patch: pytest.MonkeyPatch, factor: float, is_spoiled: Callable[[int], bool]) -> list[Any]:
    """Multiply the loss of some updates (numbered from 1) by NaN or ∞. Returns [number, batches] of the current update,
    which is kept up to date."""
    compute_loss, apply_update = Translation.loss, loop.update
    current: list[Any] = [0, []]

    def update(job: Any, state: Any, batches: Any) -> None:
        current[:] = state.step + 1, batches
        apply_update(job, state, batches)

    def loss(self: Translation, model: Any, batch: Any) -> Loss:
        result = compute_loss(self, model, batch)
        bad = is_spoiled(current[0]) and batch.rows == current[1][0].rows  # only the first batch of the update
        return Loss(result.total * factor, result.count, result.logged) if bad else result

    patch.setattr(loop, "update", update)
    patch.setattr(Translation, "loss", loss)
    return current


@pytest.mark.parametrize("factor", [math.nan, math.inf, -math.inf])
def test_update_with_nonfinite_gradient_is_skipped_and_counted(
    factor: float, tmp_path: Path, recipe: Recipe, finished_run: Path, monkeypatch: pytest.MonkeyPatch
):
    spoil_losses(monkeypatch, factor, lambda number: number in (3, 9, 10))
    train_run(recipe, tmp_path / "run")
    assert [record["skipped"] for record in log_records(tmp_path / "run")] == [1, 1, 3, 3, 3, 3]
    assert all(math.isfinite(record["loss"]) for record in log_records(tmp_path / "run"))
    weights = load_file(checkpoint(tmp_path / "run", 24) / "weights.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())
    assert log_records(tmp_path / "run")[-1] != log_records(finished_run)[-1]


def test_skipped_update_does_not_change_weights_or_optimizer(
    tmp_path: Path, recipe_with: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
):
    recipe = recipe_with("train.updates=2", "train.validate_every=1", "train.average=0")
    spoil_losses(monkeypatch, math.nan, lambda number: number == 2)
    train_run(recipe, tmp_path / "run")
    first, second = (checkpoint(tmp_path / "run", number) for number in (1, 2))
    before, after = (load_file(folder / "weights.safetensors") for folder in (first, second))
    assert all(torch.equal(before[name], after[name]) for name in before)
    before, after = (load_file(folder / "training.safetensors") for folder in (first, second))
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["random"]


def test_resume_restores_the_count_of_skipped_updates(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, contents: Contents
):
    spoil_losses(monkeypatch, math.nan, lambda number: number in (3, 17, 18, 19))
    train_run(recipe, tmp_path / "uninterrupted")
    train_run(recipe, tmp_path / "crashed", until=18)
    train_run(recipe, tmp_path / "crashed")
    assert [record["skipped"] for record in log_records(tmp_path / "crashed")] == [1, 1, 1, 1, 4, 4]
    assert contents(tmp_path / "crashed") == contents(tmp_path / "uninterrupted")


def test_nine_skipped_updates_in_a_row_do_not_stop_training(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
):
    spoil_losses(monkeypatch, math.nan, lambda number: number % 10 != 1)
    train_run(recipe, tmp_path / "run")
    assert log_records(tmp_path / "run")[-1]["skipped"] == 21


def test_ten_skipped_updates_in_a_row_stop_training_and_name_the_batch(
    corpus: Path, tmp_path: Path, recipe_of_files: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
):
    current = spoil_losses(monkeypatch, math.nan, lambda number: number > 8)
    recipe = recipe_of_files(corpus, "train.updates=24")
    with pytest.raises(RunError, match="NaN or infinite in 10 updates in a row, last at step 18 in the batch") as error:
        train(recipe, tmp_path / "run", Recorder())
    named = re.findall(r"train\.en:(\d+)", str(error.value))
    rows = {row + 1 for batch in current[1] for row in batch.rows}
    assert named
    assert {int(number) for number in named} <= rows
    assert saved_steps(tmp_path / "run") == [6, 12]
    monkeypatch.undo()
    train_run(recipe, tmp_path / "run")  # training resumes once the cause is gone


def test_interval_of_only_skipped_updates_has_no_loss(tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch):
    spoil_losses(monkeypatch, math.nan, lambda number: 5 <= number <= 8)
    train_run(recipe, tmp_path / "run")
    assert log_records(tmp_path / "run")[1]["loss"] is None


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_divergence_is_reported_as_an_error(search: str, tmp_path: Path, recipe_with: Callable[..., Recipe]):
    rate = 'train.schedule={kind="constant", rate=1e30}'
    recipe = recipe_with(rate, "train.validate_every=3", f"train.validation.search={search}")
    with pytest.raises(RunError, match="NaN or infinite"):
        train(recipe, tmp_path / "run", Recorder())
