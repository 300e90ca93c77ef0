"""The learning rate of an update: that of the schedule, times the scale of each parameter group."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from saccade.optim.optimizers import OPTIMIZERS, adamw
from saccade.recipe import Recipe
from saccade.training import loop
from saccade.training.job import TrainingJob
from training.helpers import train_run

SCALES = (0.25, 1.0)


def scaled(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW whose groups have rates of their own, as in layer-wise decay."""
    optimizer = adamw(model)
    for group, scale in zip(optimizer.param_groups, SCALES, strict=True):
        group["scale"] = scale
    return optimizer


@pytest.mark.parametrize(("kind", "scales"), [("scaled", SCALES), ("adamw", (1.0, 1.0))])
def test_rate_of_a_group_is_that_of_the_schedule_times_its_scale_also_after_resuming(
    kind: str,
    scales: tuple[float, float],
    tmp_path: Path,
    recipe_with: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(OPTIMIZERS, "scaled", scaled)
    update, rates, expected = loop.update, [], []

    def recording_update(job: TrainingJob, *arguments: object) -> None:
        update(job, *arguments)  # type: ignore[arg-type]
        rates.append([group["lr"] for group in job.optimizer.param_groups])
        expected.append([job.schedule(len(rates)) * scale for scale in scales])

    monkeypatch.setattr(loop, "update", recording_update)
    recipe = recipe_with(f"train.optimizer={kind}", "train.updates=4", "train.validate_every=2", "train.average=0")
    train_run(recipe, tmp_path / "run", until=2)
    train_run(recipe, tmp_path / "run")
    assert len(rates) == 4
    assert rates == expected
