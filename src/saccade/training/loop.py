"""The training loop. It can be killed at any moment and run again: it ends with the same bits."""

import json
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from saccade.data.batches import Batch, updates
from saccade.errors import RunError
from saccade.recipe import Recipe
from saccade.runs.checkpoints import average, checkpoint_bytes, load_training, load_weights, write_checkpoint
from saccade.runs.files import clear_leftovers, discard, not_written, verify
from saccade.runs.folder import RunFolder
from saccade.training.job import Job, prepare
from saccade.training.progress import Line, Reporter
from saccade.training.signals import Interrupted, Interrupts
from saccade.training.state import Seconds, State, Stop, Sums

MOST_SKIPS = 10  # updates in a row whose gradients are not finite


def train(recipe: Recipe, path: Path, report: Reporter, *, allow_change: bool = False) -> RunFolder:
    """Train, or go on training, the run at `path`."""
    run = RunFolder(path)
    with run.locked():
        job = prepare(recipe, run, report, allow_change)
        run.store(recipe, job.checksums, job.codecs)
        state = restore(job, run, report)
        try:
            with Interrupts() as interrupts:
                learn(job, run, state, report, interrupts)
                finish(job, run, state, report)
        except OSError as error:
            raise not_written(path, error, checkpoint_bytes(job.model, job.training_tensors())) from None
        finally:
            report.close()
    return run


def learn(job: Job, run: RunFolder, state: State, report: Reporter, interrupts: Interrupts) -> None:
    """Update after update, until there is a reason to stop."""
    settings = job.recipe.train
    job.model.train()
    began = time.monotonic() - state.seconds.total
    plan = updates(job.train.corpus, settings.batch_tokens, settings.update_tokens, job.recipe.seed, state.position)
    while not (stop := reason_to_stop(job, state)):
        before = time.monotonic()
        batches, position = next(plan)
        update(job, state, batches)
        now = time.monotonic()
        state.step, state.position = state.step + 1, position
        state.seconds = Seconds(now - began, state.seconds.interval + now - before)
        if state.step % settings.log_every == 0:
            log(job, run, state, report)
        if state.step % settings.validate_every == 0:
            validate(job, run, state, report)
            save(job, run, state, regular=True)
        if interrupts.number:
            if state.step not in state.regular:
                save(job, run, state, regular=False)
            raise Interrupted(interrupts.number, state.step)
    if state.step not in state.regular:
        validate(job, run, state, report)
        save(job, run, state, regular=True)
    report.say(f"stopped after {state.step:,} updates: {STOPS[stop]}")


STOPS: dict[Stop, str] = {
    "updates": "train.updates is reached",
    "minutes": "train.minutes is reached",
    "patience": "train.patience validations brought nothing better",
    "enough": "train.enough is reached",
}


def reason_to_stop(job: Job, state: State) -> Stop:
    settings = job.recipe.train
    if settings.enough and state.best is not None:
        sign = -1 if job.best_by == "loss" else 1
        if sign * state.best >= sign * settings.enough:
            return "enough"
    if settings.patience and state.stale >= settings.patience:
        return "patience"
    if settings.minutes and state.seconds.total >= 60 * settings.minutes:
        return "minutes"
    return "updates" if state.step >= settings.updates else ""


def update(job: Job, state: State, batches: Sequence[Batch]) -> None:
    """Sum the losses and gradients of all batches, divide once, clip, step. Skip what is not finite."""
    job.optimizer.zero_grad()
    shown: Counter[str] = Counter()
    count = 0
    for batch in batches:
        loss = job.task.loss(job.model, batch)
        loss.total.backward()
        shown.update(loss.shown)
        count += loss.count
    if not count:  # of labels: an epoch may end with rows that have none
        return
    norm = scale_gradients(job, 1 / count)
    if not (math.isfinite(norm) and math.isfinite(shown["cost"])):
        skip(job, state, batches)
        return
    for group in job.optimizer.param_groups:
        group["lr"] = job.schedule(state.step + 1)
    job.optimizer.step()
    state.in_a_row = 0
    add(state.sums, batches, shown, count, norm)


def skip(job: Job, state: State, batches: Sequence[Batch]) -> None:
    """Leave an update out, and give up after too many in a row."""
    state.skipped += 1
    state.in_a_row += 1
    if state.in_a_row >= MOST_SKIPS:
        places = ", ".join(job.train.places[row] for batch in batches for row in batch.rows[:5])
        raise RunError(
            f"gradients were not finite in {MOST_SKIPS} updates in a row, last at step {state.step + 1} in the batch "
            f"of {places}, …; look at these lines, or lower train.schedule.rate"
        )


def scale_gradients(job: Job, scale: float) -> float:
    """Make the gradients those of the mean loss, and no longer than `train.clip`; return their length before."""
    gradients = [p.grad for p in job.parameters if p.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients)) * scale
    clip = job.recipe.train.clip
    for gradient in gradients:
        gradient.mul_(scale * min(1.0, clip / norm) if clip and norm > 0 else scale)
    return norm


def add(sums: Sums, batches: Sequence[Batch], shown: Mapping[str, float], count: int, norm: float) -> None:
    sums.cost += shown["cost"]
    for name in shown.keys() - {"cost"}:
        sums.parts[name] = sums.parts.get(name, 0.0) + shown[name]
    sums.count += count
    sums.norms += norm
    sums.updates += 1
    sums.source_tokens += sum(batch.source_tokens for batch in batches)
    sums.real += sum(batch.real_tokens for batch in batches)
    sums.padded += sum(batch.padded_tokens for batch in batches)


def log(job: Job, run: RunFolder, state: State, report: Reporter) -> None:
    """Write and show the mean of the interval. metrics.jsonl holds what is exact, timing.jsonl what is measured."""
    line = interval(job, state)
    append(run, state, line.exact())
    with run.timing.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line.measured()) + "\n")
    report.line(line)
    state.sums, state.seconds.interval = Sums(), 0.0


def interval(job: Job, state: State) -> Line:
    sums, settings = state.sums, job.recipe.train
    seconds = max(1e-9, state.seconds.interval)  # of updates alone: validation is not the model's speed
    left = (settings.updates - state.step) * seconds / settings.log_every
    return Line(
        step=state.step,
        steps=settings.updates,
        epoch=state.position.epoch,
        loss=sums.cost / sums.count if sums.updates else None,
        parts={name: sums.parts[name] / sums.count for name in sorted(sums.parts)},
        gradient_norm=sums.norms / sums.updates if sums.updates else None,
        skipped=state.skipped,
        rate=job.schedule(state.step),
        seconds=state.seconds.total,
        source_rate=sums.source_tokens / seconds,
        target_rate=sums.count / seconds,
        padding=1 - sums.real / max(1, sums.padded),
        left=max(0.0, min(left, 60 * settings.minutes - state.seconds.total) if settings.minutes else left),
    )


def append(run: RunFolder, state: State, record: dict[str, Any]) -> None:
    with run.metrics.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
        state.metrics_bytes = file.tell()


def validate(job: Job, run: RunFolder, state: State, report: Reporter) -> None:
    """Use the model on the development data for real and remember whether it is the best so far."""
    recipe = job.recipe
    result = job.task.validate(job.model, job.codecs, job.dev, recipe.data.longest, recipe.train.validation)
    figure = result.figures[job.best_by]
    better = state.better(figure, job.best_by)
    if better:
        state.best, state.best_step, state.stale = figure, state.step, 0
    else:
        state.stale += 1
    samples = [sample.__dict__ for sample in result.samples]
    append(run, state, {"step": state.step, "validation": result.figures, "best": better, "samples": samples})
    report.validation(state.step, result, better)


def save(job: Job, run: RunFolder, state: State, *, regular: bool) -> None:
    """A checkpoint, then the marks that point to it, then the end of those no longer wanted."""
    if regular:
        state.regular.append(state.step)
    checkpoints = run.checkpoints
    if (old := checkpoints.folder / "average").exists():  # of an earlier end: it would hide what is newer
        discard(old)
    if run.metrics.exists():
        with run.metrics.open("rb") as file:
            os.fsync(file.fileno())
    facts = {"step": state.step, "threads": torch.get_num_threads()}
    write_checkpoint(checkpoints.at(state.step), job.model, job.training_tensors(), state.plain(), **facts)
    mark(run, state)
    prune(job, run, state)


def prune(job: Job, run: RunFolder, state: State) -> None:
    keep = max(job.recipe.train.keep, job.recipe.train.average)
    run.checkpoints.prune(keep, state.best_step, state.regular)


def mark(run: RunFolder, state: State) -> None:
    run.checkpoints.mark("latest", state.step)
    if state.best_step is not None:
        run.checkpoints.mark("best", state.best_step)


def restore(job: Job, run: RunFolder, report: Reporter) -> State:
    """Go back to the newest whole checkpoint, or begin."""
    run.checkpoints.folder.mkdir(exist_ok=True)
    clear_leftovers(run.checkpoints.folder)
    clear_leftovers(run.path)
    newest, troubles = run.checkpoints.newest_whole()
    for trouble in troubles:
        report.say(f"warning: {trouble}")
    if newest is None:
        run.metrics.write_bytes(b"")
        return State()
    manifest = load_weights(job.model, newest)
    tensors, tree = load_training(newest, manifest)
    job.restore_tensors(tensors)
    state = State.read(tree)
    with run.metrics.open("a+b") as file:
        if file.tell() < state.metrics_bytes:
            report.say(f"warning: {run.metrics}: lines are missing; the run goes on without them")
        file.truncate(min(file.tell(), state.metrics_bytes))  # what came after the checkpoint will be written again
    mark(run, state)
    prune(job, run, state)
    report.say(f"going on from step {state.step:,}")
    for fact, now in {"threads": torch.get_num_threads(), "torch": torch.__version__}.items():
        if manifest.get(fact) != now:
            report.say(f"warning: not bit-exact: {fact} was {manifest.get(fact)}, is {now}")
    return state


def averaged(run: RunFolder) -> list[int] | None:
    """The steps of the average that is there, if it is whole."""
    try:
        return verify(run.checkpoints.folder / "average").get("averaged")
    except RunError:
        return None


def finish(job: Job, run: RunFolder, state: State, report: Reporter) -> None:
    """Average the last checkpoints, if the recipe asks for it."""
    if not job.recipe.train.average:
        return
    last = [step for step in state.regular if run.checkpoints.at(step).is_dir()][-job.recipe.train.average :]
    troubles = {step: run.checkpoints.trouble(step) for step in last}
    for trouble in filter(None, troubles.values()):
        report.say(f"warning: {trouble}")
    last = [step for step in last if not troubles[step]]
    if len(last) > 1 and last != averaged(run):
        average(job.model, [run.checkpoints.at(step) for step in last])
        write_checkpoint(run.checkpoints.folder / "average", job.model, {}, None, averaged=last, step=state.step)
        report.say(f"averaged the weights of steps {', '.join(map(str, last))}")
