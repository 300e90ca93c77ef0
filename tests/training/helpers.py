"""Helpers of the training tests: trainings that crash, a reporter that records, damage to files, and what a run folder
contains."""

import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from saccade.recipe import Recipe
from saccade.runs.folder import RunFolder
from saccade.tasks.task import Validation
from saccade.training import loop
from saccade.training.loop import train
from saccade.training.progress import IntervalReport
from training.kill_driver import ENVIRONMENT, Job

Contents = Callable[[Path], dict[str, Any]]
CHECKPOINT_FILES = ("weights.safetensors", "training.safetensors", "state.json", "manifest.json")


class Recorder:
    """A reporter that records all messages, interval reports and validations."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.intervals: list[IntervalReport] = []
        self.validations: list[int] = []

    def say(self, text: str) -> None:
        self.messages.append(text)

    def interval(self, report: IntervalReport) -> None:
        self.intervals.append(report)

    def validation(self, step: int, result: Validation, best: bool) -> None:
        self.validations.append(step)

    def close(self) -> None: ...

    @property
    def warnings(self) -> list[str]:
        return [text for text in self.messages if text.startswith("warning: ")]


class Crash(Exception):
    """Simulates the sudden end of a process."""


def crash_after(patch: pytest.MonkeyPatch, step: int) -> None:
    update = loop.update

    def crashing_update(job: Any, state: Any, batches: Any) -> None:
        if state.step == step:
            raise Crash
        update(job, state, batches)

    patch.setattr(loop, "update", crashing_update)


def train_run(recipe: Recipe, run: Path, until: int | None = None, **options: Any) -> Recorder:
    """Train `run` to its end, or crash after the step `until`."""
    report = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        if until is None:
            train(recipe, run, report, **options)
            return report
        crash_after(patch, until)
        with pytest.raises(Crash):
            train(recipe, run, report, **options)
    return report


def log_records(run: Path, key: str = "loss") -> list[dict[str, Any]]:
    """The records of metrics.jsonl that have this key."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [record for record in records if key in record]


def saved_steps(run: Path) -> list[int]:
    return RunFolder(run).checkpoints.steps()


def checkpoint(run: Path, step: int) -> Path:
    return RunFolder(run).checkpoints.at(step)


def flip_bit(path: Path, bit: int | None = None) -> None:
    """Flip one bit of a file: the one in the middle by default."""
    data = bytearray(path.read_bytes())
    bit = len(data) * 4 if bit is None else bit
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def run_contents(run: Path) -> dict[str, Any]:
    """Everything in a run folder that is reproducible, by file: a checksum or the content. Elapsed seconds and damaged
    checkpoints are left out."""
    contents: dict[str, Any] = {}
    for path in sorted(p for p in run.rglob("*") if p.is_file()):
        name = path.relative_to(run).as_posix()
        if name in ("lock", "timing.jsonl", "report.html") or "/damaged-" in name:
            continue
        if path.name == "state.json":
            contents[name] = {key: value for key, value in json.loads(path.read_bytes()).items() if key != "seconds"}
        elif path.name == "manifest.json":
            manifest = json.loads(path.read_bytes())
            manifest["files"].pop("state.json", None)
            contents[name] = manifest
        else:
            contents[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return contents


@contextlib.contextmanager
def user_process(job: Job) -> Iterator[subprocess.Popen[str]]:
    """A training in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "saccade", *job["command"]]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=ENVIRONMENT, **streams) as process:
        try:
            yield process
        finally:
            process.kill()
