"""Starting from another run and freezing give the same result in one process, in threads, with DDP and with FSDP2."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from saccade.recipe import read_recipe
from saccade.runs.folder import RunFolder
from saccade.training import threads
from saccade.training.loop import train
from saccade.training.progress import Silent
from training.helpers import checkpoint
from training.kill_driver import Driver, Job, stderr_of
from training.test_ranks import DETERMINISTIC, check_same_result, two_ranks_job

FROZEN = ("encoder.layers.0.self.", "encoder.layers.0.feed_forward.")
FREEZE = f"train.freeze={[f'{name}*' for name in FROZEN]}"


@pytest.fixture(scope="module")
def parent(finished_run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(finished_run, folder / "parent-of-ranks"))


@pytest.fixture(scope="module")
def flags(parent: Path) -> list[str]:
    return [*DETERMINISTIC, f"train.start_from={parent}", "train.start_checkpoint=latest", FREEZE]


@pytest.fixture(scope="module")
def single_process_run(recipe_file: Path, flags: list[str], folder: Path) -> Path:
    run = folder / "tuned-in-one-process"
    train(read_recipe(str(recipe_file), flags).config, run, Silent())
    return run


def check_frozen(run: Path, parent: Path) -> None:
    """The frozen weights have the bits of the parent; all others have moved; the optimizer has a state only of them."""
    before = load_file(RunFolder(parent).checkpoints.find("latest") / "weights.safetensors")
    after = load_file(checkpoint(run, 24) / "weights.safetensors")
    optimized = load_file(checkpoint(run, 24) / "training.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) == name.startswith(FROZEN), name
        assert (f"exp_avg/{name}" in optimized) != name.startswith(FROZEN), name


def test_frozen_weights_keep_the_bits_of_the_parent(single_process_run: Path, parent: Path) -> None:
    check_frozen(single_process_run, parent)


def test_comparison_detects_a_frozen_weight_that_moves(single_process_run: Path, parent: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(single_process_run, tmp_path / "moved"))
    path = checkpoint(moved, 24) / "weights.safetensors"
    data = bytearray(path.read_bytes())
    start = int.from_bytes(data[:8], "little") + 8
    name = next(name for name in load_file(path) if name.startswith(FROZEN))
    offset = json.loads(data[8:start])[name]["data_offsets"][0]
    data[start + offset] ^= 1  # the last bit of a value
    path.write_bytes(data)
    with pytest.raises(AssertionError, match=name.replace(".", r"\.")):
        check_frozen(moved, parent)


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", ["replicated", "sharded"])
def test_two_ranks_start_from_a_parent_as_one_process_does(
    parallelism: str,
    flags: list[str],
    job: Callable[..., Job],
    drive: Driver,
    single_process_run: Path,
    parent: Path,
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    codes = drive(two_ranks_job(job, run, [*flags, f"train.parallelism={parallelism}"]))
    assert codes == [0], stderr_of(run) + stderr_of(run, rank=1)
    assert stderr_of(run).count("started from") == 1
    assert "started from" not in stderr_of(run, rank=1)
    check_same_result(run, single_process_run)
    check_frozen(run, parent)
    assert (run / "parent.json").read_bytes() == (single_process_run / "parent.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("separate", [True, False], ids=["separate", "in order"])
def test_threads_start_from_a_parent_as_one_thread_does(
    separate: bool,
    recipe_file: Path,
    flags: list[str],
    single_process_run: Path,
    parent: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "MIN_SHARD_TOKENS", 8)
    monkeypatch.setattr(threads, "MAX_LAYER_ACTIVATIONS", 0)
    monkeypatch.setattr(threads, "MAX_SEPARATE_GRADIENTS", 2**30 if separate else 0)
    torch.set_num_threads(2)
    try:
        train(read_recipe(str(recipe_file), flags).config, tmp_path / "run", Silent())
    finally:
        torch.set_num_threads(1)
    check_same_result(tmp_path / "run", single_process_run)
    check_frozen(tmp_path / "run", parent)
