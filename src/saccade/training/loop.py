"""The training loop. A training that is killed at any moment and resumed ends with bit-identical weights."""

import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from saccade.data.batches import Batch, Shard, updates
from saccade.errors import RunError, remedy
from saccade.recipe import Recipe
from saccade.runs.files import write_error
from saccade.runs.folder import RunFolder
from saccade.runs.weights import checkpoint_bytes
from saccade.tasks.losses import Loss
from saccade.training.checkpointing import EARLIER_INTACT, average_checkpoints, restore, save
from saccade.training.job import TrainingJob, prepare
from saccade.training.progress import IntervalReport, Reporter, Silent
from saccade.training.ranks import process_group
from saccade.training.signals import Interrupted, Interrupts
from saccade.training.state import Elapsed, TrainingState
from saccade.training.strategies import full_tensor

MAX_SKIPPED_UPDATES = 10  # consecutive updates whose loss or gradient is NaN or infinite
AUXILIARY_PREFIX = "auxiliary/"  # prefix of the auxiliary losses in the sums


def train(recipe: Recipe, path: Path, report: Reporter, *, allow_change: bool = False) -> RunFolder:
    """Train the run at `path`, or resume it, together with all other ranks."""
    run = RunFolder(path)
    with process_group(recipe.train.device) as ranks, run.locked() if ranks.is_main else nullcontext():
        report = report if ranks.is_main else Silent()
        job = prepare(recipe, run, report, allow_change, ranks)
        if ranks.is_main:
            run.store(recipe, job.checksums, job.codecs, job.parent)
        state = restore(job, run, report)
        try:
            with Interrupts() as interrupts:
                run_updates(job, run, state, report, interrupts)
                average_checkpoints(job, run, state, report)
        except OSError as error:
            with remedy(EARLIER_INTACT):
                raise write_error(path, error, checkpoint_bytes(job.model, job.optimizer_tensors)) from None
        finally:
            report.close()
    return run


def run_updates(
    job: TrainingJob, run: RunFolder, state: TrainingState, report: Reporter, interrupts: Interrupts
) -> None:
    """Update the weights until there is a reason to stop."""
    settings, ranks = job.recipe.train, job.ranks
    job.model.train()
    began = time.monotonic() - state.seconds.total
    batch_limits, shard = (settings.batch_tokens, settings.update_tokens), Shard(ranks.rank, ranks.count)
    plan = updates(job.train.corpus, *batch_limits, job.recipe.seed, state.position, shard)
    while not (reason := reason_to_stop(job, state)):
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
        # all ranks stop at the same step, even if only one got the signal
        signal_number, state.seconds.total = ranks.all_reduce_max(interrupts.number, state.seconds.total)
        if signal_number:
            if state.step not in state.regular:
                save(job, run, state, regular=False)
            raise Interrupted(int(signal_number), state.step)
    if state.step not in state.regular:
        validate(job, run, state, report)
        save(job, run, state, regular=True)
    report.say(f"stopped after {state.step:,} updates: {reason}")


def reason_to_stop(job: TrainingJob, state: TrainingState) -> str:
    """Why training stops now; "" if it continues."""
    settings, metric = job.recipe.train, job.recipe.best_metric
    if settings.stop_at and state.best is not None and not metric.is_better(settings.stop_at, than=state.best):
        return f"{metric.title} reached train.stop_at = {settings.stop_at:g}"
    if settings.patience and state.validations_since_best >= settings.patience:
        return f"{metric.title} did not improve in train.patience = {settings.patience} validations"
    if settings.minutes and state.seconds.total >= 60 * settings.minutes:
        return f"train.minutes = {settings.minutes:g} is reached"
    return "train.updates is reached" if state.step >= settings.updates else ""


def update(job: TrainingJob, state: TrainingState, batches: Sequence[Batch]) -> None:
    """One update: sum losses and gradients over all batches and ranks, divide by the number of targets, clip, step. An
    update whose loss or gradient is NaN or infinite is skipped."""
    job.optimizer.zero_grad()
    rank_sums: Counter[str] = Counter()
    for batch in batches:
        rank_sums.update(batch_sums(batch, job.strategy.backward(batch, last=batch is batches[-1])))
    sums = job.ranks.all_reduce_sum(rank_sums)
    if not sums["count"]:  # the last rows of an epoch may have no labels
        return
    # `backward` leaves the mean over ranks: × ranks.count gives the sum over ranks, / count the mean over targets
    norm = scale_gradients(job, job.ranks.count / sums["count"])
    if not (math.isfinite(norm) and math.isfinite(sums["cost"])):
        skip(job, state, batches)
        return
    for group in job.optimizer.param_groups:
        group["lr"] = job.schedule(state.step + 1) * group.get("scale", 1)
    job.optimizer.step()
    state.consecutive_skips = 0
    state.add({**sums, "gradient_norm": norm, "updates": 1})


def batch_sums(batch: Batch, loss: Loss) -> dict[str, float]:
    """The sums that are logged for a batch. Auxiliary losses have the prefix `AUXILIARY_PREFIX`. The tokens of an idle
    batch, which a rank without rows computes so that all ranks make the same calls, are not counted."""
    tokens = {
        "source_tokens": batch.source_tokens,
        "real_tokens": batch.real_tokens,
        "padded_tokens": batch.padded_tokens,
    }
    costs = {name if name == "cost" else f"{AUXILIARY_PREFIX}{name}": cost for name, cost in loss.logged.items()}
    return {"count": loss.count, **costs, **{name: 0 if batch.idle else n for name, n in tokens.items()}}


def skip(job: TrainingJob, state: TrainingState, batches: Sequence[Batch]) -> None:
    """Skip an update; stop the training after too many in a row."""
    state.skipped += 1
    state.consecutive_skips += 1
    if state.consecutive_skips >= MAX_SKIPPED_UPDATES:
        locations = ", ".join(job.train.locations[row] for batch in batches for row in batch.rows[:5])
        raise RunError(
            f"loss or gradients were NaN or infinite in {MAX_SKIPPED_UPDATES} updates in a row, last at step "
            f"{state.step + 1} in the batch of {locations}, …; check these lines, or lower train.schedule.rate"
        )


def scale_gradients(job: TrainingJob, scale: float) -> float:
    """Scale the gradients to those of the mean loss and clip their norm to `train.clip`. Return the norm before
    clipping."""
    gradients = [p.grad for p in job.parameters if p.grad is not None]
    norm = float(full_tensor(torch.nn.utils.get_total_norm(gradients))) * scale
    clip = job.recipe.train.clip
    for gradient in gradients:
        gradient.mul_(scale * min(1.0, clip / norm) if clip and norm > 0 else scale)
    return norm


def log(job: TrainingJob, run: RunFolder, state: TrainingState, report: Reporter) -> None:
    """Log the means of the interval: reproducible values to metrics.jsonl, measured ones to timing.jsonl."""
    means = interval_report(job, state)
    if job.ranks.is_main:
        append(run, state, means.reproducible())
        with run.timing.open("a", encoding="utf-8") as file:
            file.write(json.dumps(means.measured()) + "\n")
    report.interval(means)
    state.sums, state.seconds.interval = {}, 0.0


def interval_report(job: TrainingJob, state: TrainingState) -> IntervalReport:
    sums, settings = Counter(state.sums), job.recipe.train
    seconds = max(1e-9, state.seconds.interval)
    left = (settings.updates - state.step) * seconds / settings.log_every
    auxiliary = sorted(name for name in sums if name.startswith(AUXILIARY_PREFIX))
    return IntervalReport(
        step=state.step,
        updates=settings.updates,
        epoch=state.position.epoch,
        loss=sums["cost"] / sums["count"] if sums["updates"] else None,
        auxiliary_losses={name.removeprefix(AUXILIARY_PREFIX): sums[name] / sums["count"] for name in auxiliary},
        gradient_norm=sums["gradient_norm"] / sums["updates"] if sums["updates"] else None,
        skipped=state.skipped,
        rate=job.schedule(state.step),
        seconds=state.seconds.total,
        source_tokens_per_second=sums["source_tokens"] / seconds,
        target_tokens_per_second=sums["count"] / seconds,
        padding=1 - sums["real_tokens"] / max(1, sums["padded_tokens"]),
        seconds_left=max(0.0, min(left, 60 * settings.minutes - state.seconds.total) if settings.minutes else left),
    )


def append(run: RunFolder, state: TrainingState, record: Mapping[str, Any]) -> None:
    """Append a record to metrics.jsonl."""
    with run.metrics.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
        state.metrics_bytes = file.tell()


def validate(job: TrainingJob, run: RunFolder, state: TrainingState, report: Reporter) -> None:
    """Compute the metrics on the development data and record whether they are the best so far. Rank 0 validates; the
    other ranks wait for its score."""
    recipe, metric = job.recipe, job.recipe.best_metric
    job.strategy.collect_weights()
    result = None
    if job.ranks.is_main:
        with job.ranks.use_all_threads():
            result = job.task.validate(job.model, job.codecs, job.dev, recipe.data.longest, recipe.train.validation)
    score = job.ranks.broadcast(result.scores[metric.key] if result else 0.0)  # only the value of rank 0 counts
    best = state.record_score(score, metric)
    if result is None:
        return
    samples = [sample.__dict__ for sample in result.samples]
    append(run, state, {"step": state.step, "validation": result.scores, "best": best, "samples": samples})
    report.validation(state.step, result, best)
