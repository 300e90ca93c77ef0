"""The training loop. It can be killed at any moment and run again: it ends with the same bits."""

import json
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from saccade.data.batches import Batch, Shard, updates
from saccade.errors import RunError
from saccade.recipe import Recipe
from saccade.runs.files import clear_leftovers, discard, verify, write_error
from saccade.runs.folder import RunFolder
from saccade.runs.weights import average, checkpoint_bytes, load_training, load_weights, write_checkpoint
from saccade.tasks.losses import Loss
from saccade.training.job import TrainingJob, prepare
from saccade.training.progress import IntervalFigures, Reporter, Silent
from saccade.training.ranks import process_group
from saccade.training.signals import Interrupted, Interrupts
from saccade.training.state import Elapsed, IntervalSums, Stop, TrainingState
from saccade.training.strategies import full_tensor

MAX_SKIPPED_UPDATES = 10  # updates in a row whose gradients are not finite


def train(recipe: Recipe, path: Path, report: Reporter, *, allow_change: bool = False) -> RunFolder:
    """Train, or go on training, the run at `path`, with all ranks that there are."""
    run = RunFolder(path)
    with process_group() as ranks, run.locked() if ranks.is_main else nullcontext():
        report = report if ranks.is_main else Silent()
        job = prepare(recipe, run, report, allow_change, ranks)
        if ranks.is_main:
            run.store(recipe, job.checksums, job.codecs)
        state = restore(job, run, report)
        try:
            with Interrupts() as interrupts:
                run_updates(job, run, state, report, interrupts)
                finish(job, run, state, report)
        except OSError as error:
            raise write_error(path, error, checkpoint_bytes(job.model, job.optimizer_tensors)) from None
        finally:
            report.close()
    return run


def run_updates(
    job: TrainingJob, run: RunFolder, state: TrainingState, report: Reporter, interrupts: Interrupts
) -> None:
    """Update after update, until there is a reason to stop."""
    settings, ranks = job.recipe.train, job.ranks
    job.model.train()
    began = time.monotonic() - state.seconds.total
    tokens, share = (settings.batch_tokens, settings.update_tokens), Shard(ranks.rank, ranks.count)
    plan = updates(job.train.corpus, *tokens, job.recipe.seed, state.position, share)
    while not (stop := reason_to_stop(job, state)):
        before = time.monotonic()
        batches, position = next(plan)
        update(job, state, batches)
        now = time.monotonic()
        state.step, state.position = state.step + 1, position
        state.seconds = Elapsed(now - began, state.seconds.interval + now - before)
        if state.step % settings.log_every == 0:
            log(job, run, state, report)
        if state.step % settings.validate_every == 0:
            validate(job, run, state, report)
            save(job, run, state, regular=True)
        number, state.seconds.total = ranks.all_reduce_max(interrupts.number, state.seconds.total)  # all stop, or none
        if number:
            if state.step not in state.regular:
                save(job, run, state, regular=False)
            raise Interrupted(int(number), state.step)
    if state.step not in state.regular:
        validate(job, run, state, report)
        save(job, run, state, regular=True)
    report.say(f"stopped after {state.step:,} updates: {STOPS[stop]}")


STOPS: dict[Stop, str] = {
    "updates": "train.updates is reached",
    "minutes": "train.minutes is reached",
    "patience": "train.patience validations brought nothing better",
    "stop_at": "train.stop_at is reached",
}


def reason_to_stop(job: TrainingJob, state: TrainingState) -> Stop:
    settings = job.recipe.train
    if settings.stop_at and state.best is not None:
        sign = -1 if job.best_by == "loss" else 1
        if sign * state.best >= sign * settings.stop_at:
            return "stop_at"
    if settings.patience and state.validations_since_best >= settings.patience:
        return "patience"
    if settings.minutes and state.seconds.total >= 60 * settings.minutes:
        return "minutes"
    return "updates" if state.step >= settings.updates else ""


def update(job: TrainingJob, state: TrainingState, batches: Sequence[Batch]) -> None:
    """Sum the losses and gradients of all batches and ranks, divide once, clip, step. Skip what is not finite."""
    job.optimizer.zero_grad()
    mine: Counter[str] = Counter()
    for batch in batches:
        mine.update(tally(batch, job.strategy.backward(batch, last=batch is batches[-1])))
    sums = job.ranks.all_reduce_sum(mine)
    if not sums["count"]:  # of labels: an epoch may end with rows that have none
        return
    norm = scale_gradients(job, job.ranks.count / sums["count"])
    if not (math.isfinite(norm) and math.isfinite(sums["cost"])):
        skip(job, state, batches)
        return
    for group in job.optimizer.param_groups:
        group["lr"] = job.schedule(state.step + 1)
    job.optimizer.step()
    state.consecutive_skips = 0
    add(state.sums, sums, norm)


def tally(batch: Batch, loss: Loss) -> dict[str, float]:
    """What the log tells of a batch, as sums; the costs of parts by their names after `parts/`."""
    there = 0 if batch.idle else 1
    tokens = {"source_tokens": batch.source_tokens, "real": batch.real_tokens, "padded": batch.padded_tokens}
    costs = {name if name == "cost" else f"parts/{name}": cost for name, cost in loss.shown.items()}
    return {"count": loss.count, **costs, **{name: there * number for name, number in tokens.items()}}


def skip(job: TrainingJob, state: TrainingState, batches: Sequence[Batch]) -> None:
    """Leave an update out, and give up after too many in a row."""
    state.skipped += 1
    state.consecutive_skips += 1
    if state.consecutive_skips >= MAX_SKIPPED_UPDATES:
        places = ", ".join(job.train.locations[row] for batch in batches for row in batch.rows[:5])
        raise RunError(
            f"gradients were not finite in {MAX_SKIPPED_UPDATES} updates in a row, last at step {state.step + 1} in "
            f"the batch of {places}, …; look at these lines, or lower train.schedule.rate"
        )


def scale_gradients(job: TrainingJob, scale: float) -> float:
    """Make the gradients those of the mean loss, and no longer than `train.clip`; return their length before."""
    gradients = [p.grad for p in job.parameters if p.grad is not None]
    norm = float(full_tensor(torch.nn.utils.get_total_norm(gradients))) * scale
    clip = job.recipe.train.clip
    for gradient in gradients:
        gradient.mul_(scale * min(1.0, clip / norm) if clip and norm > 0 else scale)
    return norm


def add(sums: IntervalSums, found: Mapping[str, float], norm: float) -> None:
    sums.cost += found["cost"]
    for path in found:
        kind, _, name = path.partition("/")
        if kind == "parts":
            sums.parts[name] = sums.parts.get(name, 0.0) + found[path]
    sums.count += int(found["count"])
    sums.norms += norm
    sums.updates += 1
    sums.source_tokens += int(found["source_tokens"])
    sums.real += int(found["real"])
    sums.padded += int(found["padded"])


def log(job: TrainingJob, run: RunFolder, state: TrainingState, report: Reporter) -> None:
    """Write and show the mean of the interval. metrics.jsonl holds what is exact, timing.jsonl what is measured."""
    line = interval(job, state)
    if job.ranks.is_main:
        append(run, state, line.exact())
        with run.timing.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line.measured()) + "\n")
    report.line(line)
    state.sums, state.seconds.interval = IntervalSums(), 0.0


def interval(job: TrainingJob, state: TrainingState) -> IntervalFigures:
    sums, settings = state.sums, job.recipe.train
    seconds = max(1e-9, state.seconds.interval)  # of updates alone: validation is not the model's speed
    left = (settings.updates - state.step) * seconds / settings.log_every
    return IntervalFigures(
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


def append(run: RunFolder, state: TrainingState, record: dict[str, Any]) -> None:
    with run.metrics.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
        state.metrics_bytes = file.tell()


def validate(job: TrainingJob, run: RunFolder, state: TrainingState, report: Reporter) -> None:
    """Use the model on the development data for real and remember whether it is the best so far. The lead does it,
    and the other ranks wait for its verdict."""
    recipe = job.recipe
    job.strategy.collect_weights()
    result = None
    if job.ranks.is_main:
        with job.ranks.use_all_threads():
            result = job.task.validate(job.model, job.codecs, job.dev, recipe.data.longest, recipe.train.validation)
    figure = job.ranks.broadcast(result and result.figures[job.best_by])
    better = state.better(figure, job.best_by)
    if better:
        state.best, state.best_step, state.validations_since_best = figure, state.step, 0
    else:
        state.validations_since_best += 1
    if result is None:
        return
    samples = [sample.__dict__ for sample in result.samples]
    append(run, state, {"step": state.step, "validation": result.figures, "best": better, "samples": samples})
    report.validation(state.step, result, better)


def save(job: TrainingJob, run: RunFolder, state: TrainingState, *, regular: bool) -> None:
    """A checkpoint, then the marks that point to it, then the end of those no longer wanted."""
    if regular:
        state.regular.append(state.step)
    job.strategy.collect_weights()
    tensors = job.training_tensors()
    if job.ranks.is_main:
        write(job, run, state, tensors)


def write(job: TrainingJob, run: RunFolder, state: TrainingState, tensors: Mapping[str, torch.Tensor]) -> None:
    checkpoints = run.checkpoints
    if (old := checkpoints.folder / "average").exists():  # of an earlier end: it would hide what is newer
        discard(old)
    if run.metrics.exists():
        with run.metrics.open("rb") as file:
            os.fsync(file.fileno())
    facts = {"step": state.step, "threads": torch.get_num_threads(), "ranks": job.ranks.count}
    write_checkpoint(checkpoints.at(state.step), job.model, tensors, state.plain(), **facts)
    mark(run, state)
    prune(job, run, state)


def prune(job: TrainingJob, run: RunFolder, state: TrainingState) -> None:
    keep = max(job.recipe.train.keep, job.recipe.train.average)
    run.checkpoints.prune(keep, state.best_step, state.regular)


def mark(run: RunFolder, state: TrainingState) -> None:
    run.checkpoints.mark("latest", state.step)
    if state.best_step is not None:
        run.checkpoints.mark("best", state.best_step)


def restore(job: TrainingJob, run: RunFolder, report: Reporter) -> TrainingState:
    """Go back to the newest whole checkpoint, or begin."""
    tensors, tree = read_newest(job, run, report) if job.ranks.is_main else ({}, None)
    tree = job.ranks.broadcast(tree)
    if tree is None:
        return TrainingState()
    job.strategy.broadcast_weights()
    job.restore_tensors(tensors)
    return TrainingState.read(tree)


def read_newest(job: TrainingJob, run: RunFolder, report: Reporter) -> tuple[dict[str, torch.Tensor], Any]:
    """The weights go into the model; what else a checkpoint has is returned, and nothing if there is none."""
    run.checkpoints.folder.mkdir(exist_ok=True)
    clear_leftovers(run.checkpoints.folder)
    clear_leftovers(run.path)
    newest, troubles = run.checkpoints.newest_valid()
    for trouble in troubles:
        report.say(f"warning: {trouble}")
    if newest is None:
        run.metrics.write_bytes(b"")
        return {}, None
    manifest = load_weights(job.model, newest)
    tensors, tree = load_training(newest, manifest)
    state = TrainingState.read(tree)
    with run.metrics.open("a+b") as file:
        if file.tell() < state.metrics_bytes:
            report.say(f"warning: {run.metrics}: lines are missing; the run goes on without them")
        file.truncate(min(file.tell(), state.metrics_bytes))  # what came after the checkpoint will be written again
    mark(run, state)
    prune(job, run, state)
    report.say(f"going on from step {state.step:,}")
    facts = {"threads": torch.get_num_threads(), "torch": torch.__version__, "ranks": job.ranks.count}
    for fact, now in facts.items():
        if (then := {"ranks": 1, **manifest}.get(fact)) != now:
            report.say(f"warning: not bit-exact: {fact} was {then}, is {now}")
    return tensors, tree


def averaged(run: RunFolder) -> list[int] | None:
    """The steps of the average that is there, if it is whole."""
    try:
        return verify(run.checkpoints.folder / "average").get("averaged")
    except RunError:
        return None


def finish(job: TrainingJob, run: RunFolder, state: TrainingState, report: Reporter) -> None:
    """Average the last checkpoints, if the recipe asks for it."""
    if not job.recipe.train.average or not job.ranks.is_main:
        return
    last = [step for step in state.regular if run.checkpoints.at(step).is_dir()][-job.recipe.train.average :]
    troubles = {step: run.checkpoints.set_aside_if_damaged(step) for step in last}
    for trouble in filter(None, troubles.values()):
        report.say(f"warning: {trouble}")
    last = [step for step in last if not troubles[step]]
    if len(last) > 1 and last != averaged(run):
        average(job.model, [run.checkpoints.at(step) for step in last])
        write_checkpoint(run.checkpoints.folder / "average", job.model, {}, None, averaged=last, step=state.step)
        report.say(f"averaged the weights of steps {', '.join(map(str, last))}")
