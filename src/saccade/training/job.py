"""Prepares a training from its recipe: data, codecs, model, optimizer, schedule."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import build
from saccade.data.codecs import AnyCodecs
from saccade.data.sources import Loaded, Row, Source, load_rows
from saccade.data.sources.series import groups_in_several_splits
from saccade.devices import RANDOM_STATES, check_precision, random_states, restore_random_states
from saccade.errors import BuildError, ConfigError, DataError, RunError
from saccade.models.assemble import Model
from saccade.optim.freeze import freeze, warn_of_untrained
from saccade.optim.schedules import Schedule
from saccade.recipe import Recipe, sources_of
from saccade.runs.folder import RunFolder, checksums
from saccade.tasks.task import Encoded, Task, check_rows
from saccade.training.device_loss import DeviceLoss
from saccade.training.progress import Reporter
from saccade.training.ranks import Ranks, SingleProcess, rank_seed
from saccade.training.start import Parent, parent_of
from saccade.training.strategies import Strategy, full_tensor, shard_like, strategy_for
from saccade.training.training_rows import LoadedRows, TrainingRows, cached_pairs, no_rows


@dataclass(frozen=True)
class TrainingJob:
    """A training that is ready to run."""

    recipe: Recipe
    task: Task
    codecs: AnyCodecs
    train: Encoded
    dev: Sequence[Row]
    ranks: Ranks
    model: Model  # complete on rank 0, which validates and saves it
    strategy: Strategy
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    checksums: dict[str, str]
    parent: dict[str, Any] | None  # on rank 0: the facts about the run whose weights a new run starts with

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [p for p in self.strategy.model.parameters() if p.requires_grad]

    @property
    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The tensors of the optimizer by name, sharded if the model is."""
        names = {id(p): name for name, p in self.strategy.model.named_parameters()}
        return {
            f"{key}/{names[id(p)]}": value for p, state in self.optimizer.state.items() for key, value in state.items()
        }

    def training_tensors(self) -> dict[str, Tensor]:
        """What resuming needs besides the weights: the optimizer's tensors and the random states of every rank."""
        tensors = {name: full_tensor(value) for name, value in sorted(self.optimizer_tensors.items())}
        for name, state in random_states(self.ranks.device).items():
            tensors |= {rng_name(name, rank): state for rank, state in enumerate(self.ranks.all_gather(state))}
        return tensors

    def restore_tensors(self, tensors: dict[str, Tensor], checkpoint: Path) -> None:
        """Load the tensors of a checkpoint on every rank. Rank 0 provides them."""
        parameters = dict(self.strategy.model.named_parameters())
        states: dict[str, Tensor] = {}
        for path, value in self.ranks.broadcast_tensors(tensors):
            key, _, name = path.partition("/")
            if name in parameters:
                self.optimizer.state[parameters[name]][key] = shard_like(parameters[name], value)
            elif path == rng_name(key, self.ranks.rank):
                states[key] = value
            elif key not in RANDOM_STATES:
                raise RunError(
                    f"{checkpoint}: holds the optimizer state {key} of the weight {name}, which the model does not "
                    "have, so the checkpoint is of another model; train a new run with --run DIR"
                )
        restore_random_states(states, self.ranks.device)

    @property
    def device_facts(self) -> dict[str, str]:
        """On what the bits of the result depend, for the manifest of a checkpoint. What is as in DEFAULT_FACTS is left
        out."""
        facts = {"device": self.ranks.device.type, "precision": self.recipe.train.precision}
        return {name: value for name, value in facts.items() if value != DEFAULT_FACTS[name]}


DEFAULT_FACTS = {"device": "cpu", "precision": "float32"}


def rng_name(generator: str, rank: int) -> str:
    """The name of a random state of a rank in a checkpoint."""
    return f"{generator}/{rank}" if rank else generator


SINGLE_PROCESS = SingleProcess()


def prepare(
    recipe: Recipe, run: RunFolder, report: Reporter, allow_change: bool = False, ranks: Ranks = SINGLE_PROCESS
) -> TrainingJob:
    """Read and check all data, load or learn the codecs, and build the model."""
    check_precision(recipe.train.precision, ranks.device, "train.precision")
    splits, task = sources_of(recipe), recipe.built_task
    sums = checksums(splits)
    if ranks.is_main and run.started():
        run.check_unchanged(recipe, sums, allow_change)
    check_same_data_on_ranks(sums, ranks)
    parent = parent_of(recipe) if ranks.is_main and not run.started() else None
    cached = cached_pairs(recipe, splits["train"], sums, run.path, report.say)
    data = read_data(recipe, task, {split: splits[split] for split in splits if split != "train" or not cached})
    rows = cached or LoadedRows(recipe, data.pop("train"), report.say)
    codecs = codecs_of(recipe, run, rows, ranks, parent)
    train, dev = encode_data(recipe, task, rows, data, codecs, report, ranks)
    task.prepare(train, report.say)
    model, facts = initial_model(recipe, run, codecs, parent, report.say)
    if recipe.train.parallelism == "replicated" or ranks.count == 1:
        model = model.to(ranks.device)
    loss = DeviceLoss(task, ranks.device, recipe.train.precision)
    strategy = strategy_for(model, loss, recipe.train.parallelism, ranks, train.corpus.batch([0]), recipe.model.dim)
    if recipe.train.start_from:
        strategy.broadcast_weights()
    if ranks.count > 1:
        torch.manual_seed(rank_seed(recipe.seed, ranks.rank))
    try:
        optimizer = build(recipe.train.optimizer, "train.optimizer", model=strategy.model)
    except BuildError as error:
        raise ConfigError(str(error)) from None
    return TrainingJob(
        recipe=recipe,
        task=task,
        codecs=codecs,
        train=train,
        dev=dev,
        ranks=ranks,
        model=model,
        strategy=strategy,
        optimizer=optimizer,
        schedule=build(recipe.train.schedule, "train.schedule", updates=recipe.train.updates),
        checksums=sums,
        parent=facts,
    )


def initial_model(
    recipe: Recipe, run: RunFolder, codecs: AnyCodecs, parent: Parent | None, say: Callable[[str], None]
) -> tuple[Model, dict[str, Any] | None]:
    """The model with random weights or the parent's, some of them frozen, and the facts about the parent."""
    model = run.model(recipe, codecs)
    facts = parent.start(model, recipe, codecs, say) if parent else None
    messages = [freeze(model, recipe.train.freeze)]
    if parent or not recipe.train.start_from:  # otherwise the weights come from a checkpoint or from rank 0
        messages.append(warn_of_untrained(model, facts["adopted"] if facts else ()))
    for message in filter(None, messages):
        say(message)
    return model, facts


def encode_data(
    recipe: Recipe,
    task: Task,
    rows: TrainingRows,
    data: dict[str, Loaded],
    codecs: AnyCodecs,
    report: Reporter,
    ranks: Ranks,
) -> tuple[Encoded, Sequence[Row]]:
    """The encoded training rows, and the development rows all of whose labels are known."""
    train = rows.encode(codecs, ranks)
    if not len(train.corpus):
        raise DataError(
            f"data.train: none of the {task.unit} can be used for training: {_counted(train.left_out)}; correct the "
            "data, or raise data.longest"
        )
    evaluated = {split: task.drop_unknown_labels(data[split].rows, codecs, recipe.data.skip_bad) for split in data}
    dev, left_out = evaluated["dev"], train.left_out | {"in bad rows": rows.bad_rows}
    if not dev:
        raise DataError(
            "data.dev: every row has a label that does not occur in data.train; correct the labels, or add training "
            "rows with them"
        )
    report.say(
        f"{len(train.corpus):,} {task.unit} to train on (left out: {_counted(left_out)}), {len(dev):,} to validate on "
        f"(left out: {data['dev'].bad_rows + len(data['dev'].rows) - len(dev):,} in bad rows); {task.describe(codecs)}"
    )
    return train, dev


def read_data(recipe: Recipe, task: Task, splits: dict[str, Source]) -> dict[str, Loaded]:
    """The rows of the splits. The test rows of a labeling task are read too, so that errors in them are reported before
    the training instead of after it."""
    needed = [split for split in splits if split != "test" or task.has_labels]
    data = {split: load_rows(splits[split], skip_bad=recipe.data.skip_bad) for split in needed}
    for split, loaded in data.items():
        if not loaded.rows and split != "test":
            raise no_rows(split)
        check_rows(task, loaded.rows, split)
    if shared := groups_in_several_splits({split: loaded.rows for split, loaded in data.items()}):
        raise DataError(
            "\n".join(
                [*shared, "a group must not be in both training and evaluation data; separate them with `groups`"]
            )
        )
    return data


def check_same_data_on_ranks(sums: dict[str, str], ranks: Ranks) -> None:
    """Check that every rank, on whatever machine, has the same files as rank 0."""
    for key, checksum in ranks.broadcast(sums).items():
        if sums.get(key) != checksum:
            raise DataError(f"{key}: differs from the file of rank 0; give every machine the same files")


def codecs_of(recipe: Recipe, run: RunFolder, rows: TrainingRows, ranks: Ranks, parent: Parent | None) -> AnyCodecs:
    """The codecs of rank 0, on every rank."""
    if ranks.count == 1:
        return own_codecs(recipe, run, rows, parent)
    task = recipe.built_task
    codecs = own_codecs(recipe, run, rows, parent) if ranks.is_main else None
    files = {name: b64encode(content).decode() for name, content in task.files(codecs).items()} if codecs else {}
    files = {name: b64decode(content) for name, content in ranks.broadcast(files).items()}
    return codecs or task.read(files, build(recipe.data.tokenizer, "data.tokenizer"), recipe.data.joint)


def own_codecs(recipe: Recipe, run: RunFolder, rows: TrainingRows, parent: Parent | None) -> AnyCodecs:
    """The stored codecs of the run; in a new run, those of its parent, or codecs learned from the training rows."""
    stored = run.codecs(recipe) if run.started() else None
    if stored is not None:
        return stored
    return parent.codecs_for(recipe, rows.iterate(), rows.learn) if parent else rows.learn()


def _counted(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
