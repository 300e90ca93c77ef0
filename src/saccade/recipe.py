"""The whole experiment as one config: what a recipe says, what a run stores, what rebuilds a model."""

import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from saccade.config import (
    Config,
    Count,
    Natural,
    NotNegative,
    Resolved,
    Slot,
    build,
    file_layers,
    flag_layer,
    python_layer,
    resolve,
)
from saccade.data.generated import SPLITS
from saccade.data.sources import SOURCES, NoSource, rows
from saccade.data.sources.rows import Frames, Source
from saccade.data.tokenizers import SentencePieces, TokenizerSlot
from saccade.decode.engine import DecodeConfig
from saccade.decode.search import Greedy, SearchSlot
from saccade.errors import BuildError, ConfigError, DataError
from saccade.models.assemble import Model, ModelConfig, assemble, spread_block
from saccade.optim.optimizers import OptimizerSlot, adamw
from saccade.optim.schedules import InverseRoot, ScheduleSlot
from saccade.tasks import TASKS
from saccade.tasks.task import Task
from saccade.tasks.translation import Translation

SourceSlot = Annotated[Callable[..., Source], Slot(SOURCES)]


class DataConfig(Config):
    """Where text comes from and how it becomes ids. File names are taken in `folder`."""

    folder: str = "."
    train: SourceSlot = NoSource
    dev: SourceSlot = NoSource
    test: SourceSlot = NoSource
    skip_bad: bool = False  # leave bad lines out and count them, instead of stopping
    longest: Count = 256  # tokens on either side; longer rows are left out of training, series are cut
    tokenizer: TokenizerSlot = SentencePieces
    joint: bool = True  # one tokenizer for both sides


class ValidationConfig(DecodeConfig):
    """How outputs are searched for at a validation: fast, because it happens often."""

    search: SearchSlot = Greedy


class TrainConfig(Config):
    """How the model learns. `best_by` is a figure of the task's validation; auto: BLEU, or accuracy of labels."""

    updates: Count = 100_000
    minutes: NotNegative = 0.0  # stop after so much training; 0 = no limit
    batch_tokens: Count = 4096  # padded tokens of the longer side that are held at a time
    update_tokens: Natural = 0  # batches are gathered to so many target tokens; 0 = each batch is an update
    optimizer: OptimizerSlot = adamw
    schedule: ScheduleSlot = InverseRoot
    clip: NotNegative = 1.0  # longest gradient; 0 = any
    log_every: Count = 50  # updates
    validate_every: Count = 500  # updates; a checkpoint follows each validation
    validation: ValidationConfig = ValidationConfig()
    best_by: Literal["auto", "loss", "bleu", "chrf", "exact_match", "accuracy", "macro_f1"] = "auto"
    stop_at: NotNegative = 0.0  # stop when `best_by` reaches this; 0 = never
    patience: Natural = 0  # stop after so many validations without a better one; 0 = never
    keep: Count = 5  # checkpoints, beside the best
    average: Natural = 0  # at the end, average the weights of so many last checkpoints; 0 = do not
    ranks: Literal["replicated", "sharded"] = (
        "replicated"  # what each of several has of the model: all of it, or a part
    )


class Recipe(Config):
    """The root of the config."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    data: DataConfig = DataConfig()
    task: Annotated[Callable[..., Task], Slot(TASKS)] = Translation
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()


def _spread(tree: Any) -> Any:
    return tree | {"model": spread_block(tree["model"])} if "model" in tree else tree


def read_recipe(name: str, flags: Sequence[str] = ()) -> Resolved:
    """A recipe's file or a preset's name, with `--set` flags on top."""
    resolved = resolve(Recipe, [*file_layers(name), *map(flag_layer, flags)], _spread)
    check_buildable(resolved.config)
    return resolved


def recipe_of(tree: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe written in Python as nested dicts, with changes on top; `extends` works here too."""
    extends = tree.get("extends", [])
    below = [layer for name in ([extends] if isinstance(extends, str) else extends) for layer in file_layers(name)]
    own = {key: value for key, value in tree.items() if key != "extends"}
    recipe = resolve(Recipe, [*below, python_layer(own), python_layer(changes or {})], _spread).config
    check_buildable(recipe)
    return recipe


def kind_of(choice: Any) -> str:
    """The name of what fills a slot."""
    return choice.kind


def part_of(choice: Any) -> Any:
    return choice.part


def task_of(recipe: Recipe) -> Task:
    return build(recipe.task, "task")


def best_by(recipe: Recipe) -> str:
    """The figure that finds the best checkpoint."""
    return task_of(recipe).best_figure if recipe.train.best_by == "auto" else recipe.train.best_by


def check_buildable(recipe: Recipe) -> None:
    """Build everything once without memory, so that the impossible is refused before any work."""
    try:
        task = task_of(recipe)
        build(recipe.decode.search, "decode.search")
        build(recipe.train.validation.search, "train.validation.search")
        build(recipe.data.tokenizer, "data.tokenizer")
        build(recipe.train.schedule, "train.schedule", updates=recipe.train.updates)
        sources_of(recipe)
    except BuildError as refusal:
        raise ConfigError(str(refusal)) from None
    _check_task(recipe, task)
    if recipe.train.batch_tokens < recipe.data.longest + task.collate.extra_tokens:
        raise ConfigError(
            f"train.batch_tokens: {recipe.train.batch_tokens} cannot hold a sentence of data.longest = "
            f"{recipe.data.longest} tokens{' and its end' if task.collate.extra_tokens else ''}; raise the one or "
            "lower the other"
        )
    frames = row_types(part_of(recipe.data.train)) == {Frames}
    with torch.device("meta"):
        model = assemble(recipe.model, 8, 8, frames=frames, writes=task.writes)
    if isinstance(task, Translation):
        _check_guide(task, model)
    for name, side in (("encoder", model.encoder), ("decoder", model.decoder)):
        if (
            side is not None
            and side.longest is not None
            and side.longest < recipe.data.longest + task.collate.extra_tokens
        ):
            raise ConfigError(
                f"model.{name}.position.longest: {side.longest} places cannot hold data.longest = "
                f"{recipe.data.longest} tokens{' and the symbol beside them' if task.collate.extra_tokens else ''}; "
                "raise the one or lower the other"
            )


def _check_guide(task: Translation, model: Model) -> None:
    try:
        task.check(model)
    except BuildError as refusal:
        raise ConfigError(f"{'.'.join(('task', *refusal.key))}: {refusal.reason}") from None


def _check_task(recipe: Recipe, task: Task) -> None:
    """What must go together with the task."""
    if task.writes and recipe.model.shared_embeddings and not recipe.data.joint:
        raise ConfigError(
            "model.shared_embeddings: needs one vocabulary for both languages, but data.joint is false; set "
            "data.joint=true or model.shared_embeddings=false"
        )
    kind = kind_of(recipe.task)
    if best_by(recipe) not in task.figures:
        raise ConfigError(
            f"train.best_by: the task '{kind}' has no figure '{recipe.train.best_by}' "
            f"(known: auto, {', '.join(task.figures)})"
        )
    fitting = {name: part for name, part in SOURCES.items() if part is NoSource or row_types(part) & {*task.rows}}
    for split in SPLITS:
        source = getattr(recipe.data, split)
        if source.kind not in fitting:
            raise ConfigError(
                f"data.{split}: the task '{kind}' needs {task.expects}, which '{source.kind}' does not give "
                f"(known: {', '.join(name for name, part in fitting.items() if part is not NoSource)})"
            )


def row_types(source: type) -> set[type]:
    """The types of rows a source gives: its `rows` says so."""
    found = typing.get_type_hints(source.rows, localns=vars(rows)).get("return", Iterator[rows.Row])
    inner = {kind for argument in typing.get_args(found) for kind in typing.get_args(argument) or (argument,)}
    return inner & {*typing.get_args(rows.Row)}


def sources_of(recipe: Recipe) -> dict[str, Source]:
    """The sources of each split, built and ready to read."""
    return {split: _source(recipe, split) for split in SPLITS}


def _source(recipe: Recipe, split: str) -> Source:
    try:
        return build(getattr(recipe.data, split), f"data.{split}", folder=Path(recipe.data.folder))
    except DataError as error:
        raise ConfigError(f"data.{split}.{error}") from None
