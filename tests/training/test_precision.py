"""Training in bfloat16 on the CPU: resume is bit-exact, and threads and ranks compute what one process computes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from contracts.checks.batches import random_corpus
from contracts.checks.common import perturbed
from contracts.variants import DEFAULT
from saccade.devices import CPU
from saccade.recipe import Recipe
from saccade.tasks.translation import Translation
from saccade.training import threads
from saccade.training.device_loss import DeviceLoss
from saccade.training.strategies import SingleProcessStrategy, Strategy
from saccade.training.threads import ThreadedReplicas
from training.helpers import Contents, checkpoint, log_records, train_run
from training.kill_driver import Driver, Job, stderr_of

MIXED = "train.precision=bfloat16"
DETERMINISTIC = "model.dropout={attention=0, residual=0, feed_forward=0, embedding=0}"


@pytest.fixture(scope="module")
def mixed_run(folder: Path, recipe_file: Path) -> Path:
    from saccade.recipe import read_recipe

    run = folder / "mixed"
    train_run(read_recipe(str(recipe_file), [MIXED]).config, run)
    return run


def test_resume_in_bfloat16_is_bit_exact(
    mixed_run: Path, recipe_with: Callable[..., Recipe], tmp_path: Path, contents: Contents
) -> None:
    run = tmp_path / "run"
    train_run(recipe_with(MIXED), run, until=19)
    assert train_run(recipe_with(MIXED), run).warnings == []
    assert contents(run) == contents(mixed_run)


def test_training_in_bfloat16_differs_from_float32_by_rounding_only(mixed_run: Path, finished_run: Path) -> None:
    mixed, full = ([record["loss"] for record in log_records(run)] for run in (mixed_run, finished_run))
    assert mixed != full
    assert mixed[0] == pytest.approx(full[0], rel=0.01)
    assert mixed[-1] == pytest.approx(full[-1], rel=0.15)


def test_manifest_names_what_is_not_the_default(mixed_run: Path, finished_run: Path) -> None:
    facts = [json.loads((checkpoint(run, 24) / "manifest.json").read_bytes()) for run in (mixed_run, finished_run)]
    assert facts[0]["precision"] == "bfloat16"
    assert not {"device", "precision"} & facts[1].keys()


def test_resume_in_another_precision_warns(run: Path, recipe_with: Callable[..., Recipe]) -> None:
    warnings = train_run(recipe_with(MIXED), run, until=20, allow_change=True).warnings
    assert warnings == ["warning: the result will not be bit-exact: precision changed from float32 to bfloat16"]


def gradient_of(strategy: Strategy) -> Tensor:
    """The gradients of all weights in one vector."""
    torch.manual_seed(1)
    strategy.model.zero_grad()
    strategy.backward(random_corpus(23).batch(range(23)), last=True)
    return torch.cat([weight.grad.flatten() for weight in strategy.model.parameters() if weight.grad is not None])


@pytest.mark.parametrize("separate", [0, 2**30], ids=["in order", "separate"])
def test_threads_compute_the_gradients_of_one_process_in_bfloat16(
    separate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MIN_SHARD_TOKENS", 8)
    monkeypatch.setattr(threads, "MAX_LAYER_ACTIVATIONS", 0)
    monkeypatch.setattr(threads, "MAX_SEPARATE_GRADIENTS", separate)
    model = perturbed(replace(DEFAULT, source_vocabulary=100, target_vocabulary=100).fresh(), by=0.1).train()
    loss = DeviceLoss(Translation(), CPU, "bfloat16")
    replicas = ThreadedReplicas(model, loss, 2, 22)
    expected, found, again = (gradient_of(s) for s in (SingleProcessStrategy(model, loss), replicas, replicas))
    assert torch.equal(found, again)
    # other shapes of products in bfloat16, and sums in another order
    assert float((found - expected).norm() / expected.norm()) < 0.02


@pytest.mark.parametrize("parallelism", ["replicated", "sharded"])
def test_two_ranks_train_in_bfloat16_as_one_process(
    parallelism: str, recipe_with: Callable[..., Recipe], job: Callable[..., Job], drive: Driver, tmp_path: Path
) -> None:
    flags = [MIXED, DETERMINISTIC, "train.average=0"]
    train_run(recipe_with(*flags), tmp_path / "one")
    assert drive(job(tmp_path / "two", [*flags, f"train.parallelism={parallelism}"], ranks=2)) == [0], stderr_of(
        tmp_path / "two"
    )
    one, two = ([record["loss"] for record in log_records(tmp_path / run)] for run in ("one", "two"))
    assert two == pytest.approx(one, rel=0.03)
