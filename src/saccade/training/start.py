"""Fine-tuning: a training that starts with the weights of another run, its parent.

A tensor is adopted if the parent has one of the same name and shape. Weights with a row for each token (embedding
tables, heads) are adopted only if the tokenizer is the same, because the rows of another one mean other tokens.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Size, Tensor

from saccade.config import build, kind_of, leaves, plain
from saccade.data.codecs import AnyCodecs
from saccade.data.sources import Row
from saccade.devices import CPU, fork_random_states
from saccade.errors import ConfigError, RunError, plural
from saccade.inputs import Input
from saccade.models.assemble import Model, assemble, shares_embeddings
from saccade.recipe import Recipe, placeholder_input
from saccade.runs.checkpoints import WEIGHTS
from saccade.runs.files import MANIFEST
from saccade.runs.folder import RunFolder
from saccade.runs.weights import named_tensors, read_weights
from saccade.tasks.task import PairTask, Task

CHECKPOINT_KEY = "train.start_checkpoint"
OTHER_VOCABULARY = "it belongs to tokens, labels or a scaling that are not the parent's"


@dataclass(frozen=True)
class Adoption:
    """What became of the tensors of the model and of those of the parent."""

    adopted: tuple[str, ...]
    fresh: dict[str, str]  # name → why the tensor keeps its random initial values
    unused: tuple[str, ...]  # tensors of the parent


@dataclass(frozen=True)
class Parent:
    """The run whose weights a training starts with. `weights` has shared tensors under each of their names;
    `checkpoint` is the name of the folder."""

    path: str
    checkpoint: str
    manifest: Mapping[str, Any]
    recipe: Recipe
    codecs: AnyCodecs
    weights: dict[str, Tensor]

    def codecs_for(self, recipe: Recipe, rows: Iterable[Row], learn: Callable[[], AnyCodecs]) -> AnyCodecs:
        """The codecs of the new run: the parent's, or learned ones, as `train.start_vocabulary` says. `rows` are the
        training rows, whose labels the parent must know if its labels are taken."""
        task, taken = recipe.built_task, recipe.train.start_vocabulary
        if taken != "both":
            return self._with_its_source(recipe, learn()) if taken == "source" else learn()
        if task.has_labels and not all(task.drop_unknown_labels([row], self.codecs, skip_bad=True) for row in rows):
            raise ConfigError(
                f"data.train: has labels that {self.path} does not know (known: {self.codecs.target}); correct or "
                'remove these rows (data.skip_bad does not skip them), or set train.start_vocabulary = "source" to '
                "learn the labels from the data"
            )
        return self.codecs

    def _with_its_source(self, recipe: Recipe, learned: AnyCodecs) -> AnyCodecs:
        """The learned codecs with the source's of this run. The first file of a task's codecs is that of the source."""
        files = recipe.built_task.files(learned)
        source = {next(iter(files)): self.codecs.source.dump()}
        return recipe.built_task.read(files | source, build(recipe.data.tokenizer, "data.tokenizer"), recipe.data.joint)

    def start(self, model: Model, recipe: Recipe, codecs: AnyCodecs, say: Callable[[str], None]) -> dict[str, Any]:
        """Copy the weights that fit into the model, tell what was adopted, and return the facts for the run's files."""
        adoption = adopt(model, self.weights, self._of_other_vocabulary(recipe, codecs))
        where = f"{self.path} ({self.checkpoint})"
        if not adoption.adopted:
            name, reason = next(iter(adoption.fresh.items()))
            raise ConfigError(
                f"train.start_from: no tensor of {where} fits this model: {name} ({reason}), …; use the parent's "
                f"model, for example by extending {self.path}/config.toml, or leave train.start_from out"
            )
        sizes = {name: tensor.numel() for name, tensor in named_tensors(model)[0].items()}
        say(
            f"started from {where}: adopted {len(adoption.adopted):,} of {plural(len(sizes), 'tensor')}, "
            f"{sum(sizes[name] for name in adoption.adopted):,} of {sum(sizes.values()):,} values"
        )
        for line in (*self._differences(recipe), *_listed(adoption)):
            say(line)
        return {
            "run": self.path,
            "name": Path(self.path).resolve().name,
            "checkpoint": self.checkpoint,
            "step": self.manifest.get("step"),
            "sha256": self.manifest["files"][WEIGHTS]["sha256"],
            "vocabulary": recipe.train.start_vocabulary,
            **asdict(adoption),
        }

    def _of_other_vocabulary(self, recipe: Recipe, codecs: AnyCodecs) -> set[str]:
        """The names of the tensors with rows for tokens or labels, where these differ from the parent's."""
        same_source = self.codecs.source.dump() == codecs.source.dump()
        same_target = self.codecs.target.dump() == codecs.target.dump()
        of_source, of_target = vocabulary_tensors(recipe, codecs)
        return (set() if same_source else of_source) | (set() if same_target else of_target)

    def _differences(self, recipe: Recipe) -> list[str]:
        """Settings of the model in which the recipe differs from the parent. Weights may fit all the same."""
        old, new = (leaves(plain(config)["model"], "model") for config in (self.recipe, recipe))
        differing = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        kinds = tuple(key.removesuffix("kind") for key in differing if key.endswith(".kind"))
        # below another kind there are other options
        keys = [key for key in differing if key.endswith(".kind") or not key.startswith(kinds)]
        changes = [f"{key} ({old.get(key, 'not set')} → {new.get(key, 'not set')})" for key in keys]
        return [f"  the model differs from the parent's in {', '.join(changes)}"] if changes else []


def parent_of(recipe: Recipe) -> Parent | None:
    """The run that `train.start_from` names, with the weights of the chosen checkpoint, after checking that what is
    taken along fits the recipe; None if the training starts with random weights."""
    train = recipe.train
    if not train.start_from:
        return None
    folder = RunFolder(Path(train.start_from))
    if folder.path.is_file():
        raise ConfigError(f"train.start_from: {folder.path} is a file; give the folder of a run, such as runs/demo")
    if (folder.path / MANIFEST).is_file():
        raise ConfigError(
            f"train.start_from: {folder.path} is not a run; give the folder of the run and, for one of its "
            f'checkpoints, {CHECKPOINT_KEY} = "step-N"; import an exported model with `saccade import hf`'
        )
    try:
        parent_recipe = folder.config()
        codecs = folder.codecs(parent_recipe)
        if codecs is None:
            raise RunError(f"{folder.path}: has no tokenizers yet; wait for its first checkpoint")
        checkpoint = folder.checkpoints.find(train.start_checkpoint, CHECKPOINT_KEY)
        weights, manifest = weights_by_all_names(checkpoint)
    except RunError as error:
        raise RunError(f"train.start_from: {error}") from None
    _check_vocabulary(recipe, parent_recipe, codecs)
    return Parent(train.start_from, checkpoint.name, manifest, parent_recipe, codecs, weights)


def weights_by_all_names(checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a checkpoint, shared ones under each of their names, and its manifest."""
    tensors, manifest = read_weights(checkpoint)
    aliases = {alias: tensors[first] for alias, first in manifest.get("aliases", {}).items() if first in tensors}
    return tensors | aliases, manifest


def _check_vocabulary(recipe: Recipe, parent: Recipe, codecs: AnyCodecs) -> None:
    """Check that the recipe can use the tokenizers, scaling or labels that it takes from the parent."""
    taken, path = recipe.train.start_vocabulary, recipe.train.start_from
    if taken == "none":
        return
    learn_new = 'train.start_vocabulary = "none" to learn a new one; tensors with a row for each token then start anew'
    if taken == "both" and kind_of(recipe.task) != kind_of(parent.task):
        raise ConfigError(
            f"train.start_vocabulary: {path} was trained for the task '{kind_of(parent.task)}', not "
            f"'{kind_of(recipe.task)}'; set it to \"source\" to take only the source's tokenizer"
        )
    if type(placeholder_input(recipe)) is not type(codecs.source.input):
        raise ConfigError(f"data.train: does not hold the kind of data that {path} reads; set {learn_new}")
    old, new = plain(parent.data), plain(recipe.data)
    both_tokenizers = taken == "both" and not recipe.built_task.has_labels
    if both_tokenizers and _vocabularies(recipe.built_task, codecs) > 1:
        if kind_of(recipe.model.encoder) == "none":
            raise ConfigError(
                f"model.encoder: a model without an encoder reads both languages with one vocabulary, but {path} has "
                "two; choose an encoder"
            )
        if shares_embeddings(recipe.model):
            raise ConfigError(
                f"model.shared_embeddings: needs one vocabulary for both languages, but {path} has two; set it to false"
            )
    for key in ("tokenizer", "joint") if both_tokenizers else ("tokenizer",):
        if old[key] != new[key]:
            raise ConfigError(
                f"data.{key}: is {new[key]}, but the vocabulary is taken from {path}, where it is {old[key]}; set it "
                f"to the same, for example by extending {path}/config.toml, or set {learn_new}"
            )


def _vocabularies(task: Task, codecs: AnyCodecs) -> int:
    """The number of different vocabularies. Two tokenizers of an imported run may have the same one."""
    return len({tuple(t.vocabulary()) for t in task.tokenizers(codecs).values()}) if isinstance(task, PairTask) else 1


def vocabulary_tensors(recipe: Recipe, codecs: AnyCodecs) -> tuple[set[str], set[str]]:
    """The names of the tensors whose shapes depend on the vocabulary of the source, and of the target (or on the
    labels, or the columns of a series)."""
    source, target = codecs.source.input, codecs.target.size
    larger_source, larger_target = type(source)(*(size + 1 for size in astuple(source))), target + 1
    base = _shapes(recipe, source, target)
    if not recipe.built_task.has_labels and shares_embeddings(recipe.model):
        joint = _differing(base, _shapes(recipe, larger_source, larger_target))
        return joint, joint
    return (
        _differing(base, _shapes(recipe, larger_source, target)),
        _differing(base, _shapes(recipe, source, larger_target)),
    )


def _shapes(recipe: Recipe, source: Input, target: int) -> dict[str, Size]:
    with torch.device("meta"), fork_random_states(CPU):
        model = assemble(recipe.model, source, target, recipe.built_task.reads, recipe.built_task.has_labels)
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def _differing(shapes: Mapping[str, Size], others: Mapping[str, Size]) -> set[str]:
    return {name for name, shape in shapes.items() if others[name] != shape}


@torch.no_grad()
def adopt(model: Model, weights: Mapping[str, Tensor], of_other_vocabulary: set[str]) -> Adoption:
    """Copy each tensor of the parent into the tensor of the model with the same name and shape, except those of another
    vocabulary. A shared tensor of the model may have any of its names in the parent."""
    tensors, aliases = named_tensors(model)
    adopted: dict[str, str] = {}  # name → name in the parent
    fresh: dict[str, str] = {}
    for name, tensor in tensors.items():
        names = [name, *(alias for alias, first in aliases.items() if first == name)]
        found = next((n for n in names if n in weights), None)
        if found is None:
            fresh[name] = "no tensor of this name in the parent"
        elif of_other_vocabulary & {*names}:
            fresh[name] = OTHER_VOCABULARY
        elif weights[found].shape != tensor.shape:
            fresh[name] = f"shape {list(tensor.shape)}, in the parent {list(weights[found].shape)}"
        else:
            tensor.copy_(weights[found])
            adopted[name] = found
    copied = {id(weights[name]) for name in adopted.values()}
    unused = tuple(sorted(name for name, tensor in weights.items() if id(tensor) not in copied))
    return Adoption(tuple(adopted), fresh, unused)


def _listed(adoption: Adoption) -> list[str]:
    """The adopted tensors, the fresh ones grouped by the reason, and those of the parent that were not used; nothing if
    all were adopted."""
    if not adoption.fresh and not adoption.unused:
        return []
    by_reason: dict[str, list[str]] = {}
    for name, reason in adoption.fresh.items():
        by_reason.setdefault(reason, []).append(name)
    lines = [f"  fresh ({reason}): {', '.join(names)}" for reason, names in by_reason.items()]
    adopted = f"  adopted: {', '.join(_grouped(adoption.adopted, [*adoption.adopted, *adoption.fresh]))}"
    return [
        adopted,
        *lines,
        *([f"  unused tensors of the parent: {', '.join(adoption.unused)}"] if adoption.unused else []),
    ]


def _grouped(names: Collection[str], among: Collection[str], prefix: str = "") -> Iterator[str]:
    """The names, shortened: "decoder.*" stands for all names that begin with "decoder.", if all of those that are
    `among` the tensors of the model are to be named."""
    parts = {name.removeprefix(prefix).partition(".")[0] for name in names if name.startswith(prefix)}
    for part in sorted(parts, key=lambda part: (part.isdigit(), int(part) if part.isdigit() else 0, part)):
        below = f"{prefix}{part}."
        if prefix + part in names:
            yield prefix + part
        elif all(name in names for name in among if name.startswith(below)):
            yield f"{below}*"
        else:
            yield from _grouped(names, among, below)
