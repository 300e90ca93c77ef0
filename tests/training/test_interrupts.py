"""Ctrl-C and SIGTERM save a checkpoint and print the command that resumes; the result is bit-exact."""

import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training.helpers import Contents, user_process
from training.kill_driver import Driver, Job, size, stderr_of, wait_until

INTERRUPTS = [
    (signal.SIGINT, "update", 3),
    (signal.SIGINT, "update", 6),  # at a validation
    (signal.SIGTERM, "update", 8),  # at a log record
    (signal.SIGTERM, "update", 21),
    (signal.SIGINT, "update", 24),  # the last update
    (signal.SIGTERM, "decode", 3),  # during a validation, which finishes first
    (signal.SIGINT, "save_file", 4),  # during a save, which finishes first
]
SAVED_STEP = {"decode": 6, "save_file": 12}  # the step of the checkpoint, where the count is not a number of updates


@pytest.fixture(scope="module")
def interrupted(
    folder: Path, job: Callable[..., Job], drive: Driver
) -> dict[tuple[int, str, int], tuple[Path, list[int], str]]:
    """Runs that were interrupted, then resumed by the command that was printed."""
    # the space in the path tests the quoting of the printed command
    runs = {interrupt: folder / f"interrupt {number}" for number, interrupt in enumerate(INTERRUPTS)}
    first_codes = drive(*[job(run, at=[label, count], signal=number) for (number, label, count), run in runs.items()])
    messages = {interrupt: stderr_of(run) for interrupt, run in runs.items()}
    commands = {interrupt: shlex.split(text.rpartition("resume with: ")[2])[1:] for interrupt, text in messages.items()}
    second_codes = drive(*[{**job(run), "command": commands[interrupt]} for interrupt, run in runs.items()])
    return {
        interrupt: (run, [first, second], messages[interrupt])
        for (interrupt, run), first, second in zip(runs.items(), first_codes, second_codes, strict=True)
    }


@pytest.mark.parametrize(
    "interrupt", INTERRUPTS, ids=lambda interrupt: f"{interrupt[0].name} in {interrupt[1]} {interrupt[2]}"
)
def test_interrupted_run_prints_the_command_that_resumes_bit_exactly(
    interrupt: Any, interrupted: Any, reference: Path, contents: Contents
):
    run, codes, messages = interrupted[interrupt]
    number, label, count = interrupt
    assert codes == [128 + number, 0], stderr_of(run)
    step = SAVED_STEP.get(label, count)
    assert f"saved a checkpoint at step {step}; resume with: saccade train " in messages
    assert "Traceback" not in messages
    assert f"resuming from step {step}\n" in stderr_of(run)
    assert contents(run) == contents(reference)  # the average too: it leaves out the interruption's checkpoint


def test_comparison_notices_an_average_with_the_interruptions_checkpoint(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, contents: Contents
):
    run = folder / "irregular"
    interrupted = job(run, at=["update", 21], signal=signal.SIGTERM, forget="regular")
    assert drive(interrupted, job(run)) == [143, 0]
    assert contents(run) != contents(reference)


def test_signal_during_the_average_does_not_interrupt(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, contents: Contents
):
    run = folder / "late"
    assert drive(job(run, at=["average", 1], signal=signal.SIGTERM)) == [0]
    assert contents(run) == contents(reference)


@pytest.mark.slow
def test_sigterm_saves_and_exits_143(folder: Path, job: Callable[..., Job]):
    run = folder / "term"
    training = job(run, ["train.updates=1000000"])
    with user_process(training) as process:
        wait_until(lambda: size(run / "metrics.jsonl") > 0, process)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, ""), err
    last = err.rstrip().splitlines()[-1]
    assert last.startswith("saved a checkpoint at step ")
    assert shlex.split(last.partition("resume with: ")[2])[1:] == ["-m", "saccade", *training["command"]]
    assert "Traceback" not in err
    latest = (run / "latest").read_text("utf-8").strip()
    assert (run / "checkpoints" / latest / "manifest.json").is_file()


def test_second_ctrl_c_exits_during_the_update_and_the_run_resumes_bit_exactly(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, contents: Contents
):
    run, began, ended = folder / "twice", folder / "update.began", folder / "update.ended"
    drive.start(job(run, slow_update=[str(began), str(ended)]))
    wait_until(began.exists, drive.process)
    trainer = int((run / "lock").read_text("utf-8"))
    os.kill(trainer, signal.SIGINT)
    time.sleep(0.3)
    os.kill(trainer, 0)  # still alive: it finishes its update
    os.kill(trainer, signal.SIGINT)
    assert drive.exit_code() == 130
    assert not ended.exists()
    assert "Traceback" not in stderr_of(run)
    assert drive(job(run)) == [0]
    assert contents(run) == contents(reference)
