"""Everything a training works with, made ready from a recipe: data, codecs, model, optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import build
from saccade.data.codecs import Codecs
from saccade.data.sources import Frames, Loaded, Source, load
from saccade.data.sources.series import leaks
from saccade.errors import DataError
from saccade.models.assemble import Model
from saccade.optim.schedules import Schedule
from saccade.recipe import Recipe, best_by, sources_of, task_of
from saccade.runs.folder import RunFolder, checksums, learn_codecs
from saccade.tasks.task import Encoded, Task, check_rows
from saccade.training.progress import Reporter


@dataclass(frozen=True)
class Job:
    """A training that is ready to run."""

    recipe: Recipe
    task: Task
    codecs: Codecs[Any, Any]
    train: Encoded
    dev: Sequence[Any]
    model: Model
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    checksums: dict[str, str]

    @property
    def best_by(self) -> str:
        return best_by(self.recipe)

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
    """Read and check all data, take the run's codecs or learn them, build the model."""
    splits, task = sources_of(recipe), task_of(recipe)
    sums = checksums(splits)
    if run.started():
        run.compare(recipe, sums, allow_change)
    data = read_data(recipe, task, splits)
    codecs = codecs_of(recipe, run, data, report)
    train = task.encode(data["train"].rows, codecs, recipe.data.longest)
    if not len(train.corpus):
        raise DataError(f"data.train: none of {len(data['train'].rows):,} {task.unit} can be trained on")
    judged = {split: task.known(data[split].rows, codecs, recipe.data.skip_bad) for split in data if split != "train"}
    dev, left_out = judged["dev"], train.left_out | {"bad lines left out": data["train"].faults}
    if not dev:
        raise DataError(f"data.dev: none of {len(data['dev'].rows):,} {task.unit} has only labels of data.train")
    report.say(
        f"{len(train.corpus):,} {task.unit} to train on ({_counted(left_out)}), {len(dev):,} to validate on "
        f"({data['dev'].faults + len(data['dev'].rows) - len(dev):,} bad lines left out); {task.told(codecs)}"
    )
    model = run.model(recipe, codecs)
    return Job(
        recipe=recipe,
        task=task,
        codecs=codecs,
        train=train,
        dev=dev,
        model=model,
        optimizer=build(recipe.train.optimizer, "train.optimizer", parameters=model.parameters()),
        schedule=build(recipe.train.schedule, "train.schedule", updates=recipe.train.updates),
        checksums=sums,
    )


def read_data(recipe: Recipe, task: Task, splits: dict[str, Source]) -> dict[str, Loaded]:
    """The rows to learn from and to validate on. Where there are labels, test rows are looked at too: what is wrong
    with them is better said before the training than after it."""
    wanted = ("train", "dev") if task.writes else ("train", "dev", "test")
    data = {split: load(splits[split], skip_bad=recipe.data.skip_bad) for split in wanted}
    for split, loaded in data.items():
        if not loaded.rows and split != "test":
            raise DataError(f"data.{split}: there is no text; name some, as docs/config.md shows")
        check_rows(task, loaded.rows, split)
    if leaking := leaks({split: loaded.rows for split, loaded in data.items()}):
        raise DataError("\n".join([*leaking, "what is judged must not be learned from; part the groups with `groups`"]))
    return data


def codecs_of(recipe: Recipe, run: RunFolder, data: dict[str, Loaded], report: Reporter) -> Codecs[Any, Any]:
    """Those of the run, or new ones."""
    known = run.codecs(recipe) if run.started() else None
    if known is not None:
        return known
    rows = data["train"].rows
    report.say("measuring the numbers" if isinstance(rows[0], Frames) else "learning the tokenizer")
    return learn_codecs(recipe, rows)


def _counted(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
