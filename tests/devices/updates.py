"""A training update of a model, on the CPU or on the simulated device."""

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from contracts.checks.common import assert_close
from contracts.checks.running import small_corpus
from devices.simulated import CUDA, OnDevice, simulated_device
from saccade.config import build
from saccade.data.batches import Batch, Corpus
from saccade.devices import CPU
from saccade.models.assemble import Model
from saccade.recipe import recipe_of
from saccade.tasks.task import Task
from saccade.training.device_loss import DeviceLoss
from saccade.training.job import TrainingJob
from saccade.training.loop import update
from saccade.training.ranks import SingleProcess
from saccade.training.state import TrainingState
from saccade.training.strategies import SingleProcessStrategy

RECIPE: dict[str, Any] = {
    "data": {split: {"kind": "copy", "rows": 8, "split": split} for split in ("train", "dev")},
    "train": {"schedule": {"kind": "constant", "rate": 0.01}},
}
Gradients = dict[str, Tensor]


def job_of(model: Model, task: Task, optimizer: str, device: torch.device) -> TrainingJob:
    """A training of the model, which must be on the device."""
    recipe = recipe_of(RECIPE, {"train": {"optimizer": optimizer}})
    no_data: Any = None
    return TrainingJob(
        recipe=recipe,
        task=task,
        codecs=no_data,
        train=no_data,
        dev=(),
        ranks=SingleProcess(device),
        model=model,
        strategy=SingleProcessStrategy(model, DeviceLoss(task, device, "float32")),
        optimizer=build(recipe.train.optimizer, "train.optimizer", model=model),
        schedule=build(recipe.train.schedule, "train.schedule", updates=100),
        checksums={},
        parent=None,
    )


def updated(
    model: Model, task: Task, batches: list[Batch], optimizer: str, device: torch.device
) -> tuple[dict[str, float], Gradients]:
    """The logged sums and the gradients of an update. The batches are on the CPU."""
    model.train()
    job, state = job_of(model, task, optimizer, device), TrainingState()
    update(job, state, batches)
    assert state.sums, "the update was skipped"
    return state.sums, {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def check_update(
    model: Model,
    task: Task,
    corpus: Corpus | None = None,
    optimizer: str = "adamw",
    same_values: bool = True,
    batch_rows: Sequence[Sequence[int]] = ((0, 1), (2, 3)),
) -> list[str]:
    """An update on the simulated device keeps everything there, and has the result of an update on the CPU (unless
    random numbers decide it). Returns what the CPU waited for."""
    corpus = corpus or small_corpus(model)
    batches = list(map(corpus.batch, batch_rows))
    expected_sums, expected = updated(copy.deepcopy(model), task, batches, optimizer, CPU)
    with simulated_device() as device:
        moved = cast(Model, copy.deepcopy(model).to(CUDA))
        sums, gradients = updated(moved, task, batches, optimizer, CUDA)
        tensors = gradients | moved.state_dict()
        on_cpu = [name for name, tensor in tensors.items() if not isinstance(tensor, OnDevice)]
        assert not on_cpu, f"not on the device after an update: {on_cpu}"
    assert (sums.keys(), gradients.keys()) == (expected_sums.keys(), expected.keys())
    if same_values:
        for name, value in expected_sums.items():
            assert abs(sums[name] - value) <= 1e-4 * max(1.0, abs(value)), f"{name}: {sums[name]} instead of {value}"
        for name, tensor in expected.items():
            assert_close(cast(OnDevice, gradients[name]).values, tensor, f"the gradient of {name}")
    return device.reads
