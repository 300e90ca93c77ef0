"""Saving and restoring a training: what a checkpoint holds, when old ones are deleted, and the average at the end.

`runs/files.py` writes folders atomically, `runs/weights.py` is the file format, `runs/checkpoints.py` knows which
checkpoints a run has.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from saccade.errors import RunError, remedy
from saccade.runs.files import clear_leftovers, discard, verify
from saccade.runs.folder import RunFolder
from saccade.runs.weights import average, load_training, load_weights, write_checkpoint
from saccade.training.job import DEFAULT_FACTS, TrainingJob
from saccade.training.progress import Reporter
from saccade.training.state import TrainingState

EARLIER_INTACT = "earlier checkpoints are intact"  # after a failed write


def save(job: TrainingJob, run: RunFolder, state: TrainingState, *, regular: bool) -> None:
    """Save a checkpoint: a `regular` one after a validation, another one at an interruption. All ranks call this,
    because each may hold a shard; rank 0 writes."""
    if regular:
        state.regular.append(state.step)
    job.strategy.collect_weights()
    tensors = job.training_tensors()
    if job.ranks.is_main:
        _write(job, run, state, tensors)


def _write(job: TrainingJob, run: RunFolder, state: TrainingState, tensors: Mapping[str, Tensor]) -> None:
    checkpoints = run.checkpoints
    if (old := checkpoints.folder / "average").exists():  # left by a shorter training; `auto` would prefer it
        discard(old)
    if run.metrics.exists():
        with run.metrics.open("rb") as file:
            os.fsync(file.fileno())
    facts = {"step": state.step, "threads": torch.get_num_threads(), "ranks": job.ranks.count, **job.device_facts}
    with remedy(EARLIER_INTACT):
        write_checkpoint(checkpoints.at(state.step), job.model, tensors, state.plain(), **facts)
    mark(run, state)
    _prune(job, run, state)


def mark(run: RunFolder, state: TrainingState) -> None:
    """Write the names of the latest and of the best checkpoint to the files `latest` and `best`."""
    run.checkpoints.mark("latest", state.step)
    if state.best_step is not None:
        run.checkpoints.mark("best", state.best_step)


def _prune(job: TrainingJob, run: RunFolder, state: TrainingState) -> None:
    keep = max(job.recipe.train.keep, job.recipe.train.average)
    run.checkpoints.prune(keep, state.best_step, state.regular)


def restore(job: TrainingJob, run: RunFolder, report: Reporter) -> TrainingState:
    """Load the newest undamaged checkpoint into model and optimizer; the initial state if there is none."""
    tensors, tree = _read_newest(job, run, report) if job.ranks.is_main else ({}, None)
    tree = job.ranks.broadcast(tree)
    if tree is None:
        return TrainingState()
    state = TrainingState.read(tree, run.checkpoints.folder)
    job.strategy.broadcast_weights()
    job.restore_tensors(tensors, run.checkpoints.at(state.step))
    return state


def _read_newest(job: TrainingJob, run: RunFolder, report: Reporter) -> tuple[dict[str, Tensor], Any]:
    """Load the weights of the newest undamaged checkpoint, and return its optimizer tensors and its training state
    (None if there is no checkpoint)."""
    run.checkpoints.folder.mkdir(exist_ok=True)
    clear_leftovers(run.checkpoints.folder)
    clear_leftovers(run.path)
    newest, damaged = run.checkpoints.newest_valid()
    for message in damaged:
        report.say(f"warning: {message}")
    if newest is None:
        run.metrics.write_bytes(b"")
        return {}, None
    manifest = load_weights(job.model, newest)
    with remedy("delete this checkpoint folder; training then resumes from the one before it, or starts anew"):
        tensors, tree = load_training(newest, manifest)
    state = TrainingState.read(tree, newest)
    with run.metrics.open("a+b") as file:
        if file.tell() < state.metrics_bytes:
            report.say(f"warning: {run.metrics}: lines are missing; the curves will have a gap")
        file.truncate(min(file.tell(), state.metrics_bytes))  # later lines will be written again
    mark(run, state)
    _prune(job, run, state)
    report.say(f"resuming from step {state.step:,}")
    facts = {"threads": torch.get_num_threads(), "torch": torch.__version__, "ranks": job.ranks.count}
    facts |= DEFAULT_FACTS | job.device_facts
    for name, now in facts.items():
        if (before := {"ranks": 1, **DEFAULT_FACTS, **manifest}.get(name)) != now:
            report.say(f"warning: the result will not be bit-exact: {name} changed from {before} to {now}")
    return tensors, tree


def average_checkpoints(job: TrainingJob, run: RunFolder, state: TrainingState, report: Reporter) -> None:
    """Write the average of the weights of the last `train.average` checkpoints, if the recipe asks for it."""
    if not job.recipe.train.average or not job.ranks.is_main:
        return
    last = [step for step in state.regular if run.checkpoints.at(step).is_dir()][-job.recipe.train.average :]
    damaged = {step: run.checkpoints.set_aside_if_damaged(step) for step in last}
    for message in filter(None, damaged.values()):
        report.say(f"warning: {message}")
    steps = [step for step in last if not damaged[step]]
    if len(steps) > 1 and steps != _averaged_steps(run):
        average(job.model, [run.checkpoints.at(step) for step in steps])
        write_checkpoint(run.checkpoints.folder / "average", job.model, {}, None, averaged=steps, step=state.step)
        report.say(f"averaged the weights of steps {', '.join(map(str, steps))}")


def _averaged_steps(run: RunFolder) -> list[int] | None:
    """The steps of the existing average, unless it is missing or damaged."""
    try:
        return verify(run.checkpoints.folder / "average").get("averaged")
    except RunError:
        return None
