"""Everything a training works with, made ready from a recipe: text, tokenizers, model, optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.config import build
from saccade.data.sources import Pair
from saccade.errors import DataError
from saccade.models.assemble import Model
from saccade.optim.schedules import Schedule
from saccade.recipe import Recipe, sources_of
from saccade.runs.folder import RunFolder, checksums, learn_tokenizers, pairs_of
from saccade.tasks.translation import Encoded, Tokenizers, Translation, encode
from saccade.training.progress import Reporter


@dataclass(frozen=True)
class Job:
    """A training that is ready to run."""

    recipe: Recipe
    task: Translation
    tokenizers: Tokenizers
    train: Encoded
    dev: Sequence[Pair]
    model: Model
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    checksums: dict[str, str]

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def training_tensors(self) -> dict[str, Tensor]:
        """What resuming needs beside the weights: the optimizer's tensors by name, and the random generator."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        tensors = {
            f"{key}/{names[id(p)]}": value for p, state in self.optimizer.state.items() for key, value in state.items()
        }
        return {**tensors, "random": torch.get_rng_state()}

    def restore_tensors(self, tensors: dict[str, Tensor]) -> None:
        torch.set_rng_state(tensors.pop("random"))
        parameters = dict(self.model.named_parameters())
        for path, value in tensors.items():
            key, name = path.split("/", 1)
            self.optimizer.state[parameters[name]][key] = value


def prepare(recipe: Recipe, run: RunFolder, report: Reporter, allow_change: bool = False) -> Job:
    """Read and check all text, take the run's tokenizers or learn them, build the model."""
    splits = sources_of(recipe)
    sums = checksums(splits)
    if run.started():
        run.compare(recipe, sums, allow_change)
    pairs, faults = pairs_of(splits, "train", recipe.data.skip_bad)
    dev, dev_faults = pairs_of(splits, "dev", recipe.data.skip_bad)
    for split, found in (("train", pairs), ("dev", dev)):
        if not found:
            raise DataError(f"data.{split}: there is no text; name some, as docs/config.md shows")
    known = run.tokenizers(recipe) if run.started() else None
    if known is None:
        report.say("learning the tokenizer")
    tokenizers = known or learn_tokenizers(recipe, pairs)
    train = encode(pairs, tokenizers, recipe.data.longest)
    if not len(train.corpus):
        raise DataError(f"data.train: none of {len(pairs):,} pairs can be trained on")
    report.say(
        f"{len(train.corpus):,} pairs to train on ({train.empty:,} with an empty side, {train.too_long:,} too long, "
        f"{faults:,} bad lines left out), {len(dev):,} to validate on ({dev_faults:,} bad lines left out); "
        f"{tokenizers.source.size:,} source and {tokenizers.target.size:,} target tokens"
    )
    model = run.model(recipe, tokenizers)
    optimizer = build(recipe.train.optimizer, "train.optimizer", parameters=model.parameters())
    return Job(
        recipe=recipe,
        task=build(recipe.task, "task"),
        tokenizers=tokenizers,
        train=train,
        dev=dev,
        model=model,
        optimizer=optimizer,
        schedule=build(recipe.train.schedule, "train.schedule", updates=recipe.train.updates),
        checksums=sums,
    )
