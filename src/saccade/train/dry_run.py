"""What a training would cost, from a few real steps."""

import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from saccade.console import clock
from saccade.data.batches import epoch_batches, updates
from saccade.data.batches import Position
from saccade.recipe import Recipe
from saccade.runs.folder import RunFolder
from saccade.train.job import prepare
from saccade.train.loop import update
from saccade.train.progress import Reporter
from saccade.train.state import State

STEPS = 10


def dry_run(recipe: Recipe, path: Path, report: Reporter) -> Iterator[str]:
    """Parameters, peak memory with the largest batch, time an epoch, disk. Writes nothing."""
    job = prepare(recipe, RunFolder(path), report)
    corpus, settings = job.train.corpus, recipe.train
    plan = epoch_batches(corpus, settings.batch_tokens, recipe.seed, 0)
    cells = [len(b) * int(max(corpus.source_lengths[b].max(), corpus.target_lengths[b].max())) for b in plan]
    largest = plan[cells.index(max(cells))]
    job.model.train()
    state = State()
    update(job, state, [corpus.batch(largest.tolist())])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    began, tokens = time.monotonic(), 0
    for _, (batches, _) in zip(
        range(STEPS),
        updates(corpus, settings.batch_tokens, settings.update_tokens, recipe.seed, Position()),
        strict=False,
    ):
        update(job, state, batches)
        tokens += sum(batch.target_tokens for batch in batches)
    seconds = time.monotonic() - began
    epoch = seconds * (int(corpus.target_lengths.sum()) + len(corpus)) / tokens
    parameters = sum(p.numel() for p in job.parameters)
    kept = max(settings.keep, settings.average) + 2
    checkpoint = sum(
        t.numel() * t.element_size() for t in (*job.model.parameters(), *job.training_tensors().values())
    )
    yield f"parameters       {parameters:,}"
    yield f"peak memory      {peak / 1e6:,.0f} MB, with the largest of {len(plan):,} batches"
    yield f"speed            {tokens / seconds:,.0f} target tokens/s"
    yield f"time an epoch    {clock(epoch)}, validation aside"
    yield f"whole training   {clock(seconds / STEPS * settings.updates)} for {settings.updates:,} updates, validation aside"
    yield f"disk             {checkpoint * kept / 1e6:,.0f} MB: {kept} checkpoints of {checkpoint / 1e6:,.1f} MB"
