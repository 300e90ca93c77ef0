"""Estimates the cost of a training from a few real updates."""

import itertools
import time
from dataclasses import dataclass
from pathlib import Path

from saccade.console import clock
from saccade.data.batches import SamplerState, epoch_batches, updates
from saccade.devices import peak_memory
from saccade.encoding.cache import VARIABLE, why_not_default_folder
from saccade.errors import RunError
from saccade.recipe import Recipe, sources_of
from saccade.runs.folder import RunFolder
from saccade.runs.weights import checkpoint_bytes
from saccade.training.job import TrainingJob, prepare
from saccade.training.loop import update
from saccade.training.progress import Reporter
from saccade.training.ranks import single_process
from saccade.training.state import TrainingState
from saccade.training.training_rows import uses_cache

TIMED_STEPS = 10


@dataclass(frozen=True)
class CostEstimate:
    """Measured values, and the costs of the whole training estimated from them."""

    parameters: int
    peak_bytes: int
    tokens_per_second: float  # target tokens
    epoch_seconds: float
    training_seconds: float
    checkpoint_bytes: int
    checkpoints: int

    def lines(self) -> list[str]:
        megabytes = self.checkpoint_bytes / 1e6
        return [
            f"parameters       {self.parameters:,}",
            f"peak memory      {self.peak_bytes / 1e6:,.0f} MB, with the largest batch",
            f"speed            {self.tokens_per_second:,.0f} target tokens/s",
            f"time per epoch   {clock(self.epoch_seconds)}, without validations",
            f"whole training   {clock(self.training_seconds)} to the last update, without validations",
            f"disk             {megabytes * self.checkpoints:,.0f} MB in {self.checkpoints} checkpoints",
        ]


def dry_run(recipe: Recipe, path: Path, report: Reporter) -> CostEstimate:
    """Measure peak memory on the largest batch, then speed on the first batches. Nothing is written but the cache."""
    check_cache_folder(recipe)
    job = prepare(recipe, RunFolder(path), report, ranks=single_process(recipe.train.device))
    settings, corpus = recipe.train, job.train.corpus
    state = TrainingState()
    job.model.train()
    update(job, state, [corpus.batch(largest_batch(job))])
    peak = peak_memory(job.ranks.device)
    plan = updates(corpus, settings.batch_tokens, settings.update_tokens, recipe.seed, SamplerState())
    began, tokens = time.monotonic(), 0
    for batches, _ in itertools.islice(plan, TIMED_STEPS):
        update(job, state, batches)
        tokens += sum(batch.target_tokens for batch in batches)
    seconds = time.monotonic() - began
    return CostEstimate(
        parameters=sum(p.numel() for p in job.parameters),
        peak_bytes=peak,
        tokens_per_second=tokens / seconds,
        epoch_seconds=seconds * corpus.target_tokens / max(1, tokens),
        training_seconds=seconds / TIMED_STEPS * settings.updates,
        checkpoint_bytes=checkpoint_bytes(job.model, job.training_tensors()),
        checkpoints=max(settings.keep, settings.average) + 2,  # the best one, and the one being written
    )


def check_cache_folder(recipe: Recipe) -> None:
    """Refuse to encode a large text where only the run folder could hold the result: a dry run writes nothing there."""
    if uses_cache(recipe, sources_of(recipe)["train"]) and (problem := why_not_default_folder()):
        raise RunError(f"the large training text needs a cache, but {problem}; set {VARIABLE} to a folder")


def largest_batch(job: TrainingJob) -> list[int]:
    """The rows of the batch with the most padded tokens."""
    corpus = job.train.corpus
    batches = epoch_batches(corpus, job.recipe.train.batch_tokens, job.recipe.seed, 0)
    return max(batches, key=lambda rows: len(rows) * corpus.lengths_of(rows).max()).tolist()
