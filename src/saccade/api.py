"""The Python interface: `train` a recipe, `load` a run, use it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from saccade.attention_alignment import AlignmentSettings, WordPairs, align_by_attention, default_settings
from saccade.config import factory_of, kind_of, suggestion
from saccade.data.batches import Corpus
from saccade.data.codecs import Codecs
from saccade.data.links import Links
from saccade.data.sources import NoSource, Pair, Row
from saccade.data.tokenizers import END, SPECIAL, Tokenizer, word_of
from saccade.decode.engine import DecodeConfig, Engine, Output, changed_decode_config, in_order
from saccade.devices import CPU, DeviceName, choose_device, fork_random_states
from saccade.errors import ConfigError, DataError, RunError
from saccade.formats.engines import ENGINES, QUANTIZATIONS, EngineRequest, choose
from saccade.models.assemble import Model, is_cross_attention
from saccade.notes import capture
from saccade.recipe import Recipe, recipe_of, sources_of
from saccade.runs.evaluations import evaluation_rows, evaluation_split
from saccade.runs.folder import RunFolder, load_split
from saccade.runs.weights import load_weights
from saccade.tasks import TASKS, kinds_with
from saccade.tasks.classification import Classification
from saccade.tasks.evaluation import Evaluation
from saccade.tasks.losses import teacher_forced_hidden
from saccade.tasks.tagging import Tagging
from saccade.tasks.task import EvaluationOptions, RowType, Task, TrainedModel, check_rows
from saccade.tasks.translation import Translation, teacher_forced_cost
from saccade.training.loop import train as run_training
from saccade.training.progress import ConsoleReporter, Reporter
from saccade.view.maps import AttentionMap, AttentionMaps, Axis

TaskType = TypeVar("TaskType", bound=Task)


def load(
    path: str | Path,
    checkpoint: str = "auto",
    *,
    engine: str = "torch",
    quantization: str = "float32",
    device: DeviceName = "auto",
) -> "Run":
    """Open a trained run. `checkpoint`: auto, average, best, latest or step-N. `engine` computes translations: torch,
    ctranslate2, onnx, or auto for CTranslate2 if it is installed and can run the model, otherwise torch.
    `quantization` int8 needs CTranslate2. `device` is that of torch: auto (cuda, else mps, else cpu), cpu, cuda or mps;
    the other engines use the CPU."""
    return Run(Path(path), checkpoint, engine, quantization, device)


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    run: str | Path | None = None,
    *,
    set: Mapping[str, Any] | None = None,  # noqa: A002 - as `--set` on the command line
    report: Reporter | None = None,
) -> "Run":
    """Train a recipe: a file, a preset, a nested dict, or a Recipe. Calling it again resumes an interrupted training.
    `run` is the run folder (default: runs/NAME for a file or preset, else runs/run). `set` is a nested dict of values
    that override the recipe."""
    name = Path(recipe).stem if isinstance(recipe, (str, Path)) else "run"
    if isinstance(recipe, Recipe):
        if set:
            raise ConfigError(
                "set: cannot override values of a Recipe object; pass the recipe as a file or a nested dict"
            )
        config = recipe
    else:
        config = recipe_of({"extends": str(recipe)} if isinstance(recipe, (str, Path)) else recipe, set or {})
    folder = run_training(config, Path(run or Path("runs") / name), report or ConsoleReporter())
    return Run(folder.path, device=config.train.device)


class Run:
    """A trained model with its codecs. Maps raw text or numeric series to raw text or labels."""

    def __init__(
        self,
        path: Path,
        checkpoint: str = "auto",
        engine: str = "torch",
        quantization: str = QUANTIZATIONS[0],
        device: DeviceName = "auto",
    ):
        if engine not in ENGINES:
            raise ConfigError(f"engine: unknown engine '{engine}'{suggestion(engine, ENGINES)}")
        if quantization not in QUANTIZATIONS:
            raise ConfigError(
                f"quantization: unknown quantization '{quantization}'{suggestion(quantization, QUANTIZATIONS)}"
            )
        if quantization != QUANTIZATIONS[0] and engine not in ("auto", "ctranslate2"):
            raise ConfigError(f'quantization: "{quantization}" needs engine = "ctranslate2", got engine = "{engine}"')
        self._engine = engine if quantization == QUANTIZATIONS[0] else "ctranslate2"
        if device in ("cuda", "mps") and self._engine not in ("auto", "torch"):
            raise ConfigError(f'device: "{device}" needs engine = "torch", got engine = "{self._engine}"')
        if device in ("cuda", "mps"):
            self._engine = "torch"
        self._quantization, self._device = quantization, choose_device(device, "device")
        self.folder = RunFolder(path)
        self.recipe = self.folder.config()
        self.checkpoint = self.folder.checkpoints.find(checkpoint)

    @cached_property
    def task(self) -> Task:
        return self.recipe.built_task

    def require(self, task: type[TaskType]) -> TaskType:
        """The run's task, which must be of this class."""
        if not isinstance(self.task, task):
            raise self._wrong_task(next(kind for kind, factory in TASKS.items() if factory is task))
        return self.task

    def _wrong_task(self, needed: str) -> RunError:
        command = self.task.command
        return RunError(
            f"{self.folder.path}: was trained for {kind_of(self.recipe.task)}, but this needs a {needed} run; use "
            f"this one with `saccade {command}`, or Run.{command} in Python"
        )

    @property
    def reads_frames(self) -> bool:
        """Whether the inputs are numeric series; otherwise they are text."""
        return not self.codecs.source.input.is_text

    @cached_property
    def codecs(self) -> Codecs[Any, Any]:
        codecs = self.folder.codecs(self.recipe)
        if codecs is None:
            raise RunError(f"{self.folder.path}: the run has no tokenizer yet; train it first with `saccade train`")
        return codecs

    @cached_property
    def model(self) -> Model:
        with fork_random_states(CPU):
            model = self.folder.model(self.recipe, self.codecs)
        load_weights(model, self.checkpoint)
        return model.to(self._device).eval()

    @cached_property
    def engine(self) -> Engine:
        """The engine that generates text from text."""
        if not self.task.text_to_text:
            raise self._wrong_task(kinds_with("text_to_text"))
        request = EngineRequest(self.folder.path, self.checkpoint.name, lambda: self, quantization=self._quantization)
        return choose(self._engine, request).engine

    def predict(self, items: Sequence[object]) -> list[str]:
        """The output for each source, of whatever task, as a line of text."""
        rows = self._rows(self.task, [(item, None) for item in items], "item")
        return self.task.predict_lines(self._trained, rows)

    def outputs(
        self,
        texts: Sequence[str],
        decode: DecodeConfig | None = None,
        prefixes: Sequence[str] | None = None,
        first: int = 0,
    ) -> Iterator[list[Output]]:
        """For each text, in order, its outputs with scores and pieces, best first. See `Engine` for the parameters."""
        return in_order(self.engine.generate(texts, decode or self.recipe.decode, prefixes, first))

    def translate(self, texts: Sequence[str], *, beam: int | None = None) -> list[str]:
        """The best translation of each text. `beam` overrides the search of the recipe."""
        return [best[0].text for best in self.outputs(texts, self._with_beam(beam))]

    def _with_beam(self, beam: int | None) -> DecodeConfig:
        search = {"search": {"kind": "beam", "size": beam}} if beam else {}
        return changed_decode_config(self.recipe.decode, search | {"scores": False})

    def attention(self, text: str, target: str | None = None, *, beam: int | None = None) -> AttentionMaps:
        """The attention weights of every layer and head, with `text` as the source and `target` (default: the model's
        own translation) as the output."""
        if not self.task.text_to_text:
            kinds = kinds_with("text_to_text")
            raise RunError(f"{self.folder.path}: {self.task.does}; attention can be shown for {kinds} runs only")
        source_ids = self.codecs.source.encode([text])[0]
        if target is None:
            output = next(self.outputs([text], self._with_beam(beam)))[0]
            target, target_ids = output.text, list(output.ids[:-1])  # encoding the text again could give other pieces
        else:
            target_ids = self.codecs.target.encode([target])[0]
        batch = Corpus([source_ids], [target_ids], self.task.collate).batch([0])
        with torch.inference_mode(), capture(self.model) as captured:
            teacher_forced_hidden(self.model, batch.to(self._device))
            weights = {name: tensor[0].cpu().numpy().astype(np.float32) for name, tensor in captured.items()}
        assert batch.inputs is not None
        axes = {
            "source": _axis(self.codecs.source, [*source_ids, END]),
            "inputs": _axis(self.codecs.target, batch.inputs.values[0].tolist()),
            "outputs": _axis(self.codecs.target, [*target_ids, END]),
        }
        return AttentionMaps(text, target, {name: _map(name, w, axes) for name, w in weights.items()})

    def align(self, pairs: Sequence[tuple[str, str]], settings: AlignmentSettings | None = None) -> list[Links]:
        """Word alignments of each pair, read from attention. `settings` default to those that `saccade align search`
        found for this run, or else to `default_settings`. Words are separated by white space."""
        links = dict(self.align_as_completed(pairs, settings))
        return [links[row] for row in range(len(pairs))]

    def align_as_completed(
        self, pairs: Sequence[tuple[str, str]], settings: AlignmentSettings | None = None
    ) -> Iterator[tuple[int, Links]]:
        """As `align`, but yields the index of each pair with its links, in the order in which they are computed."""
        words, settings = WordPairs.of(self.codecs, pairs), settings or self.alignment_settings
        return align_by_attention(self.model, words, settings, self.recipe.decode.batch_tokens)

    @cached_property
    def alignment_settings(self) -> AlignmentSettings:
        """The settings with which `align` extracts links from attention weights."""
        return self.folder.alignment_settings() or default_settings(self.model, self.require(Translation))

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """log p(target | source) of each pair: the sum of the log-probabilities of the tokens of the target and of the
        end symbol, not normalized by length."""
        self.require(Translation)
        sources = self.codecs.source.encode([source for source, _ in pairs])
        targets = self.codecs.target.encode([target for _, target in pairs])
        corpus = Corpus(sources, targets, self.task.collate)
        return [
            -teacher_forced_cost(self.model, corpus, self.recipe.decode.batch_tokens, [row])[0]
            for row in range(len(pairs))
        ]

    # ── labels ──

    def tag(self, sequences: Sequence[str | Sequence[str] | np.ndarray]) -> list[list[str]]:
        """A label for each step of each sequence. A sequence is a list of words, a text of words separated by spaces,
        or frames [T F]."""
        task = self.require(Tagging)
        rows = self._rows(task, [(sequence, None) for sequence in sequences], "sequence")
        return task.predict(self.model, self.codecs, rows, *self._limits)

    def classify(self, items: Sequence[str | np.ndarray]) -> list[str]:
        """The most probable label of each text or series [T F]; "" for an empty one."""
        return [max(labels, key=labels.__getitem__, default="") for labels in self.probabilities(items)]

    def probabilities(self, items: Sequence[str | np.ndarray]) -> list[dict[str, float]]:
        """Label → probability for each text or series [T F]; an empty dict for an empty one."""
        task = self.require(Classification)
        rows = self._rows(task, [(item, None) for item in items], "item")
        probabilities = task.probabilities(self.model, self.codecs, rows, *self._limits)
        names = self.codecs.target.names
        return [dict(zip(names, map(float, p), strict=True)) if len(p) else {} for p in probabilities]

    @property
    def _limits(self) -> tuple[int, int]:
        """The maximum length of a window, and the maximum number of tokens in a batch."""
        return self.recipe.data.longest, self.recipe.decode.batch_tokens

    def _rows(self, task: Task[RowType, Any], pairs: Iterable[tuple[object, object]], noun: str) -> list[RowType]:
        """Rows of sources and targets given in Python. `noun` is what messages call one of them."""
        return [
            task.row(self.codecs, source, target, f"{noun} {number}")
            for number, (source, target) in enumerate(pairs, 1)
        ]

    # ── scores ──

    def evaluate(
        self,
        pairs: Sequence[tuple[object, object]] | None = None,
        *,
        decode: DecodeConfig | None = None,
        labels: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Scores on the recipe's test data, or on pairs (source, reference or labels). With `labels`, the
        accuracy counts only rows (or steps) with one of these true labels, and macro F1 averages only these labels."""
        task = self.task
        if labels and not task.has_labels:
            raise ConfigError(f"labels: a {kind_of(self.recipe.task)} run has no labels; leave this argument out")
        rows = self.test_rows() if pairs is None else self._rows(task, pairs, "pair")
        skip_bad = self.recipe.data.skip_bad and pairs is None
        known = task.drop_unknown_labels(rows, self.codecs, skip_bad)
        scores = task.evaluate(self._trained, known, EvaluationOptions(decode or self.recipe.decode, tuple(labels)))
        left_out = {"left_out": len(rows) - len(known)} if task.has_labels else {}
        return scores | left_out | {"checkpoint": self.checkpoint.name}

    @cached_property
    def _trained(self) -> TrainedModel:
        longest = self.recipe.data.longest
        return TrainedModel(self.model, self.codecs, longest, self.recipe.decode, engine=lambda: self.engine)

    def evaluate_for_report(self) -> Evaluation:
        """The evaluation that a report shows: on the test data, or on the development data if the recipe has no test
        data."""
        rows = evaluation_rows(self.folder, self.recipe)
        known = self.task.drop_unknown_labels(rows, self.codecs, self.recipe.data.skip_bad)
        return self.task.evaluate_for_report(self._trained, known, evaluation_split(self.recipe))

    def test_rows(self) -> list[Row]:
        """The rows of the recipe's test data."""
        splits = sources_of(self.recipe)
        self.folder.check_same_data({"test": splits["test"]})
        rows, _ = load_split(splits, "test", self.recipe.data.skip_bad)
        if not rows:
            has_none = factory_of(self.recipe.data.test) is NoSource
            problem = "the recipe has no test data" if has_none else "its files have no usable rows"
            files = "give --src FILE and --ref FILE, or " if self.task.text_to_text else ""
            raise DataError(f"data.test: {problem}; {files}call Run.evaluate(pairs) in Python")
        check_rows(self.task, rows, "test")
        return list(rows)

    def test_pairs(self) -> list[tuple[str, str]]:
        """The sources and references of the recipe's test data."""
        self.require(Translation)
        return [(row.source, row.target) for row in self.test_rows() if isinstance(row, Pair)]


def _axis(tokenizer: Tokenizer, ids: list[int]) -> Axis:
    pieces = tokenizer.pieces(ids)
    return Axis(tuple(p if p in SPECIAL else p.strip() for p in pieces), tuple(word_of(pieces)))


def _map(name: str, weights: np.ndarray, axes: dict[str, Axis]) -> AttentionMap:
    """The attention map of a module; its name tells which sequences are on the axes."""
    if name.startswith("encoder."):
        return AttentionMap(weights, axes["source"], axes["source"], "encoder")
    if is_cross_attention(name):
        return AttentionMap(weights, axes["outputs"], axes["source"], "cross")
    return AttentionMap(weights, axes["inputs"], axes["inputs"], "decoder")
