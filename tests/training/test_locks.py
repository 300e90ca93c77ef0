"""Only one process at a time trains a run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from saccade.errors import RunError
from saccade.recipe import Recipe
from saccade.runs.folder import RunFolder
from saccade.training.loop import train
from training.helpers import Contents, Recorder, saved_steps, train_run


def test_locked_run_is_refused_with_the_pid_of_its_trainer(run: Path, recipe: Recipe, contents: Contents):
    before = contents(run)
    with RunFolder(run).locked(), pytest.raises(RunError, match=f"being trained by process {os.getpid()};"):
        train(recipe, run, Recorder())
    assert contents(run) == before


def test_lock_file_of_an_ended_process_is_ignored(run: Path, recipe: Recipe, finished_run: Path, contents: Contents):
    (run / "lock").write_text("1\n", "utf-8")
    train_run(recipe, run)
    assert contents(run) == contents(finished_run)
    assert (run / "lock").read_text("utf-8") == f"{os.getpid()}\n"


@pytest.mark.slow
def test_second_process_is_refused_until_the_first_one_ends(
    tmp_path: Path, recipe_file: Path, recipe_with: Callable[..., Recipe]
):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "saccade", "train", str(recipe_file), "--run", str(run)]
    first = subprocess.Popen([*command, "--set", "train.updates=1000000"], stderr=subprocess.DEVNULL)
    long_recipe = recipe_with("train.updates=1000000")
    try:
        deadline = time.monotonic() + 60
        while not (run / "latest").exists():
            assert time.monotonic() < deadline
            assert first.poll() is None
            time.sleep(0.01)
        with pytest.raises(RunError, match=f"process {first.pid};"):
            train(long_recipe, run, Recorder())
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    last = max(saved_steps(run))
    report = train_run(long_recipe, run, until=last)
    assert f"resuming from step {last:,}" in report.messages
