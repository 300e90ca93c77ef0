"""The recipe: the config of a whole experiment. A run stores it, and its model is rebuilt from it."""

import functools
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from saccade.config import (
    Config,
    Count,
    Given,
    Natural,
    NotNegative,
    Resolved,
    Slot,
    build,
    factory_of,
    kind_of,
    merge,
    python_layer,
    resolve,
    unused_choices,
    used_choices,
)
from saccade.config_files import extended_names, file_layers, flag_layer
from saccade.data.source_codecs import SOURCE_CODECS, TextCodec
from saccade.data.sources import SOURCES, NoSource, rows
from saccade.data.sources.generated import SPLITS
from saccade.data.sources.rows import Source
from saccade.data.tokenizers import SentencePieceKind, TokenizerSlot
from saccade.decode.engine import DecodeConfig
from saccade.decode.search import Greedy, SearchSlot
from saccade.devices import DeviceName, Precision
from saccade.errors import BuildError, ConfigError, DataError
from saccade.inputs import Input
from saccade.models.assemble import ModelConfig, assemble, expand_block, sides_with_blocks
from saccade.optim.freeze import freeze
from saccade.optim.optimizers import OptimizerSlot, adamw
from saccade.optim.schedules import InverseRoot, ScheduleSlot
from saccade.parts.token_costs import check_cost_terms
from saccade.tasks import TASKS
from saccade.tasks.task import Metric, Task
from saccade.tasks.translation import Translation

SourceSlot = Annotated[Callable[..., Source], Slot(SOURCES)]


class DataConfig(Config):
    """Where the data comes from, and how text becomes token ids. File names are relative to `folder`."""

    folder: str = "."
    train: SourceSlot = NoSource
    dev: SourceSlot = NoSource
    test: SourceSlot = NoSource
    skip_bad: bool = False  # skip and count bad rows instead of stopping
    # Tokens per side, or frames. Longer rows are left out of training, but tagging cuts longer series into windows.
    longest: Count = 256
    tokenizer: TokenizerSlot = SentencePieceKind
    joint: bool = True  # one tokenizer for both sides
    # Encoded training pairs in memory-mapped files that trainings share; auto: if the text is large. Results are equal.
    cache: Literal["auto", "always", "never"] = "auto"


class ValidationConfig(DecodeConfig):
    """Decode settings of validations: greedy by default, because validations are frequent."""

    search: SearchSlot = Greedy


class TrainConfig(Config):
    """How the model is trained."""

    updates: Count = 100_000
    minutes: NotNegative = 0.0  # stop after so many minutes of training; 0 = no limit
    batch_tokens: Count = 4096  # padded tokens of a batch, on its longer side
    update_tokens: Natural = 0  # gradient accumulation: at least so many target tokens per update; 0 = one batch
    optimizer: OptimizerSlot = adamw
    schedule: ScheduleSlot = InverseRoot
    clip: NotNegative = 1.0  # maximum gradient norm; 0 = no clipping
    log_every: Count = 50  # updates
    validate_every: Count = 500  # updates; every validation is followed by a checkpoint
    validation: ValidationConfig = ValidationConfig()
    best_by: str = "auto"  # the metric that selects the best checkpoint; auto: BLEU, or accuracy for labels
    stop_at: NotNegative = 0.0  # stop when `best_by` reaches this score; 0 = never
    patience: Natural = 0  # early stopping after so many validations without a better score; 0 = never
    keep: Count = 5  # checkpoints to keep, besides the best; at least `average` are kept
    average: Natural = 0  # average the weights of so many last checkpoints at the end of training; 0 = none
    device: DeviceName = "auto"  # auto: cuda, else mps, else cpu; several ranks take a cuda device each
    precision: Precision = "float32"  # bfloat16: mixed precision, matrix products in bfloat16 and the rest in float32
    parallelism: Literal["replicated", "sharded"] = "replicated"  # each rank holds the whole model, or a shard of it
    start_from: str = ""  # fine-tuning: the run whose weights the training starts with
    start_checkpoint: str = "auto"  # of that run: auto, average, best, latest or step-N
    # What is taken from that run besides the weights: both tokenizers (or tokenizer and labels), the source's, or none.
    start_vocabulary: Literal["both", "source", "none"] = "both"
    freeze: tuple[str, ...] = ()  # patterns of the names of weights that are not trained, such as "encoder.*"


class Recipe(Config):
    """The root of the config."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    data: DataConfig = DataConfig()
    task: Annotated[Callable[..., Task], Slot(TASKS)] = Translation
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    @cached_property
    def built_task(self) -> Task:
        """The task with the options of the recipe."""
        return build(self.task, "task", has_encoder=kind_of(self.model.encoder) != "none")

    @property
    def best_metric(self) -> Metric:
        """The metric that selects the best checkpoint."""
        task, key = self.built_task, self.train.best_by
        if key == "auto":
            return task.best_metric
        metric = next((metric for metric in task.metrics if metric.key == key), None)
        if metric is None:
            known = ", ".join(["auto", *(metric.key for metric in task.metrics)])
            raise ConfigError(f"train.best_by: the task '{kind_of(self.task)}' has no metric '{key}' (known: {known})")
        return metric


def expand_shorthands(layers: Sequence[Any]) -> list[Any]:
    """The layers with `model.block` copied to the sides that have blocks. If the task predicts labels and nothing is
    said about the decoder, the first layer says that there is none."""
    merged = functools.reduce(merge, layers, {})
    if _lacks_decoder(merged):
        no_decoder = python_layer({"model": {"decoder": "none"}}, "the task, which predicts labels")
        layers, merged = [no_decoder, *layers], merge(no_decoder, merged)
    sides = sides_with_blocks(merged.get("model"))
    expanded: list[Any] = []
    for layer in layers:
        models = expand_block(layer["model"], sides) if "model" in layer else []
        expanded += [*({"model": model} for model in models), {key: layer[key] for key in layer if key != "model"}]
    return expanded


def _lacks_decoder(tree: Any) -> bool:
    """Whether the task predicts labels and nothing is said about the decoder."""
    task, model = tree.get("task"), tree.get("model", {})
    kind = task.get("kind") if isinstance(task, dict) else task
    factory = TASKS.get(kind.value) if isinstance(kind, Given) and isinstance(kind.value, str) else None
    predicts_labels = factory is not None and factory.reads != "decoder"
    return predicts_labels and isinstance(model, dict) and "decoder" not in model


def read_recipe(name: str, flags: Sequence[str] = ()) -> Resolved:
    """Read a recipe file or a preset, and apply `--set` flags. The result has the recipe as `.config`, and the origin
    of each value as `.origins`."""
    return resolve_recipe([*file_layers(name), *map(flag_layer, flags)])


def resolve_recipe(layers: Sequence[Any]) -> Resolved:
    """Merge the layers of files and flags into a recipe, and check it. Later layers override earlier ones."""
    resolved = resolve(Recipe, expand_shorthands(layers))
    check_buildable(resolved.config)
    return resolved


def recipe_of(tree: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe given as nested dicts, with `changes` on top. `extends` works as in a file."""
    base = [layer for name in extended_names(tree.get("extends", [])) for layer in file_layers(name)]
    own = {key: value for key, value in tree.items() if key != "extends"}
    return resolve_recipe([*base, python_layer(own), python_layer(changes or {})]).config


def check_buildable(recipe: Recipe) -> None:
    """Refuse an impossible config before any work: build the task, the searches, the tokenizer, the schedule, the
    sources and (on the meta device) the model, and check that the settings fit together."""
    try:
        task = recipe.built_task
        build(recipe.decode.search, "decode.search")
        build(recipe.train.validation.search, "train.validation.search")
        build(recipe.data.tokenizer, "data.tokenizer")
        build(recipe.train.schedule, "train.schedule", updates=recipe.train.updates)
        sources_of(recipe)
    except BuildError as error:
        raise ConfigError(str(error)) from None
    _check_task(recipe, task)
    _check_start(recipe, task)
    longest = recipe.data.longest
    positions = int(task.collate.lengths(np.array([longest]), np.array([longest]))[0])
    if recipe.train.batch_tokens < positions:
        raise ConfigError(
            f"train.batch_tokens: {recipe.train.batch_tokens} is less than the longest row, which takes {positions} "
            f"positions with data.longest = {longest}; raise train.batch_tokens or lower data.longest"
        )
    with torch.device("meta"), used_choices() as used:
        # The sizes of the vocabularies are known only after the tokenizers are learned, and do not matter here.
        model = assemble(recipe.model, placeholder_input(recipe), 8, task.reads, task.has_labels)
    for key in unused_choices(recipe.model, used, "model"):
        raise ConfigError(f"{key}: has no effect, because nothing in this model uses it; leave it out")
    freeze(model, recipe.train.freeze)  # refuses patterns that match nothing or all weights
    # An imported run may have one vocabulary for two tokenizers; a training learns one only with data.joint.
    one_vocabulary = recipe.data.joint or takes_all_codecs(recipe)
    try:
        check_cost_terms(task.token_cost, model.head.cost_terms, kind_of(recipe.model.head))
        task.check(model, recipe.model, one_vocabulary)
    except BuildError as error:
        raise ConfigError(f"{'.'.join(('task', *error.key))}: {error.reason}") from None
    for name, side in (("encoder", model.encoder), ("decoder", model.decoder)):
        if side is not None and side.longest is not None and side.longest < positions:
            raise ConfigError(
                f"model.{name}.position.longest: {side.longest} positions cannot hold the longest row, which takes "
                f"{positions} with data.longest = {longest}; raise it or lower data.longest"
            )


def takes_all_codecs(recipe: Recipe) -> bool:
    """Whether the tokenizers (and labels) are those of the run that the training starts from."""
    return bool(recipe.train.start_from) and recipe.train.start_vocabulary == "both"


def _check_start(recipe: Recipe, task: Task) -> None:
    """Check the settings of a training that starts from another run."""
    train = recipe.train
    for key in ("start_checkpoint", "start_vocabulary"):
        if not train.start_from and getattr(train, key) != TrainConfig.model_fields[key].default:
            raise ConfigError(f"train.{key}: has no effect without train.start_from; set that too, or leave it out")
    if train.start_vocabulary == "source" and not task.has_labels and recipe.data.joint:
        raise ConfigError(
            'train.start_vocabulary: "source" takes the tokenizer of one language, but data.joint is true: both '
            'languages have the same tokenizer; set data.joint = false, or choose "both" or "none"'
        )


def _check_task(recipe: Recipe, task: Task) -> None:
    """Refuse a metric that the task does not compute, and sources of data that it cannot be trained on."""
    _ = recipe.best_metric
    fitting = {name: kind for name, kind in SOURCES.items() if kind is NoSource or row_types(kind) & {*task.rows}}
    for split in SPLITS:
        source = getattr(recipe.data, split)
        if source.kind not in fitting:
            suitable = ", ".join(name for name, kind in fitting.items() if kind is not NoSource)
            raise ConfigError(
                f"data.{split}: the task '{kind_of(recipe.task)}' needs {task.expects}, which the source "
                f"'{source.kind}' does not provide; use one of {suitable}"
            )


def row_types(source: type) -> set[type]:
    """The row types that a source yields, from the annotation of its `rows` method."""
    annotation = typing.get_type_hints(source.rows, localns=vars(rows)).get("return", Iterator[rows.Row])
    types = {kind for argument in typing.get_args(annotation) for kind in typing.get_args(argument) or (argument,)}
    return types & {*typing.get_args(rows.Row)}


def placeholder_input(recipe: Recipe) -> Input:
    """What the encoder will read, as far as it is known before the codecs are learned: its size is arbitrary."""
    codecs = {SOURCE_CODECS[kind] for kind in row_types(factory_of(recipe.data.train))}
    return codecs.pop().placeholder if len(codecs) == 1 else TextCodec.placeholder


def sources_of(recipe: Recipe) -> dict[str, Source]:
    """Split name → its source, ready to read."""
    return {split: _source(recipe, split) for split in SPLITS}


def _source(recipe: Recipe, split: str) -> Source:
    try:
        key = f"data.{split}"
        return build(getattr(recipe.data, split), key, folder=Path(recipe.data.folder), config_key=key)
    except DataError as error:
        raise ConfigError(f"data.{split}.{error}") from None
