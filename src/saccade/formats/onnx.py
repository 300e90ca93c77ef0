"""ONNX: a folder with the two graphs of a model, its tokenizers and its search settings, run by onnxruntime."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

import saccade
from saccade.config import Config, Natural, build, plain, python_layer, resolve
from saccade.data.batches import Side
from saccade.data.tokenizers import Tokenizer, TokenizerSlot
from saccade.decode.engine import DecodeConfig, Output, SearchEngine
from saccade.errors import ConfigError, RunError, SaccadeError
from saccade.formats.onnx_graphs import NEXT, Unexportable, graphs
from saccade.places import Fixed
from saccade.recipe import Recipe, kind_of, task_of
from saccade.runs.files import Writer, read_json, to_json, verify, write_folder
from saccade.shapes import Float, Int
from saccade.tasks.translation import Translation

FORMAT = 1
ENCODER, STEP, SETTINGS = "encoder.onnx", "step.onnx", "settings.json"
INSIDE = 1_500_000_000  # bytes of weights that a graph's file may hold itself: protobuf ends at 2 GB
SLACK = 1 << 20  # bytes for the graphs themselves


class Settings(Config):
    """What running a folder needs beside its graphs. Of places 0 means any number."""

    format: Natural
    tokenizer: TokenizerSlot
    joint: bool
    source_places: Natural
    target_places: Natural
    decode: DecodeConfig


class Trained(Protocol):
    """What is exported of a run that `saccade.load` opened. What it reads when first asked is any type here, because a
    checker does not take it for an attribute."""

    recipe: Recipe
    checkpoint: Path
    codecs: Any  # Codecs[Tokenizer, Tokenizer]
    model: Any  # Model


# ── writing ───────────────────────────────────────────────────────────────────────────────────────


def why_not(recipe: Recipe) -> str | None:
    """The key that stands in the way of an export; None if nothing does."""
    if not task_of(recipe).writes:
        return f'task: "{kind_of(recipe.task)}" has no decoder that writes; models for "translation" can be exported'
    return None


def write(run: Trained, folder: Path) -> None:
    """All that onnxruntime needs to translate as the run does, in one folder."""
    _require("onnx", "onnxscript")
    if reason := why_not(run.recipe):
        raise RunError(f"{run.checkpoint}: cannot be exported to ONNX: {reason}")
    try:
        encoder, step = graphs(run.model)
    except Unexportable as refusal:
        raise RunError(f"{run.checkpoint}: cannot be exported to ONNX: {refusal}") from None
    weights = sum(weight.numel() * weight.element_size() for weight in run.model.parameters())
    files = task_of(run.recipe).files(run.codecs) | {SETTINGS: to_json(plain(_settings(run)))}
    writers: dict[str, Writer] = {name: lambda path, data=data: _write(path, data) for name, data in files.items()}
    beside = weights > INSIDE
    writers |= _graph_writers(ENCODER, encoder, beside) | _graph_writers(STEP, step, beside)
    facts = {"format": FORMAT, "saccade": saccade.__version__, "checkpoint": run.checkpoint.name}
    write_folder(folder, writers, facts, needed=2 * weights + SLACK)  # an embedding may stand in both graphs


def _settings(run: Trained) -> Settings:
    return Settings(
        format=FORMAT,
        tokenizer=run.recipe.data.tokenizer,
        joint=run.recipe.data.joint,
        source_places=run.model.encoder.longest or 0,
        target_places=run.model.decoder.longest or 0,
        decode=run.recipe.decode,
    )


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _graph_writers(name: str, graph: Any, beside: bool) -> dict[str, Writer]:
    """A graph's file, and one for its weights where they are too many."""
    weights: dict[str, Writer] = {f"{name}.data": lambda path: None} if beside else {}  # written with the graph
    return {name: lambda path: _save(graph, path, beside)} | weights


def _save(graph: Any, path: Path, beside: bool) -> None:
    import onnx

    graph.save(path, external_data=beside)
    onnx.checker.check_model(path)


def _require(*packages: str) -> None:
    """Refuse before any work if a package is missing."""
    for package in packages:
        try:
            __import__(package)
        except ImportError as error:
            raise RunError(f"ONNX needs more packages ({error.name}): pip install 'saccade[onnx]'") from None


# ── running ───────────────────────────────────────────────────────────────────────────────────────


def open(folder: Path) -> "OnnxEngine":  # noqa: A001 - the verb of every format
    """The engine of a folder that `write` has written, after every byte of it was checked."""
    _require("onnxruntime")
    listed = verify(folder)["files"]
    for name in (ENCODER, STEP, SETTINGS):
        if name not in listed:
            raise RunError(f"{folder / 'manifest.json'}: does not list {name}; export the run again")
    settings = _read_settings(folder / SETTINGS)
    files = {name: (folder / name).read_bytes() for name in listed if name.endswith(".model")}
    try:
        kind = build(settings.tokenizer, "tokenizer")
        codecs = Translation().read(files, kind, settings.joint)
    except RunError as error:
        raise RunError(f"{folder}: {error}") from None
    return OnnxEngine(OnnxWriter(folder, settings), codecs.source, codecs.target, settings.decode)


def _read_settings(path: Path) -> Settings:
    tree = read_json(path)
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise RunError(f"{path}: is not of format {FORMAT}, which this Saccade reads; export the run again")
    try:
        return resolve(Settings, [python_layer(tree)]).config
    except ConfigError as error:
        raise RunError(f"{path}: is not of this version of Saccade:\n{error}") from None


class OnnxEngine:
    """Runs an exported model with onnxruntime. `decode` are the search settings that came with it."""

    def __init__(self, writer: "OnnxWriter", source: Tokenizer, target: Tokenizer, decode: DecodeConfig):
        self.writer, self.decode = writer, decode
        self._engine = SearchEngine(writer, source, target)

    def find(
        self,
        sources: Sequence[str],
        decode: DecodeConfig,
        prefixes: Sequence[str] | None = None,
        first: int = 0,
        going: Callable[[], bool] = lambda: True,
    ) -> Iterator[tuple[int, list[Output]]]:
        return self._engine.find(sources, decode, prefixes, first, going)


class OnnxWriter:
    """The two graphs as a search engine sees them. A state is a flat dict of tensors, which share their memory with
    onnxruntime's; what of it a step never changes is `Fixed`."""

    def __init__(self, folder: Path, settings: Settings):
        self._encoder, self._step = _session(folder / ENCODER), _session(folder / STEP)
        self.longest, self._source_places = settings.target_places or None, settings.source_places
        given = {value.name for value in self._encoder.get_outputs()}
        self._moving = [value.name.removeprefix(NEXT) for value in self._step.get_outputs()][1:]
        wanted = {value.name for value in self._step.get_inputs()} - {"tokens"}
        if wanted != given or not wanted >= {*self._moving}:
            raise RunError(f"{folder}: {ENCODER} and {STEP} do not belong together; export the run again")
        self._outputs = ["log_probs", *(NEXT + name for name in self._moving)]

    def read(self, source: Side) -> dict[str, Tensor]:
        """The state before the first token."""
        length = source.values.shape[1]
        if self._source_places and length > self._source_places:
            raise SaccadeError(
                f"place {length - 1} is past the {self._source_places} learned positions; train with a larger "
                'position.longest, or with position = "sinusoidal", which has no end'
            )
        keep = torch.ones_like(source.values, dtype=torch.bool) if source.keep is None else source.keep
        names = [value.name for value in self._encoder.get_outputs()]
        found = _run(self._encoder, names, {"ids": source.values, "keep": keep})
        return dict(zip(names, found, strict=True))

    def start(self, memory: Mapping[str, Tensor], rows: int) -> dict[str, Tensor | Fixed]:
        return {name: value if name in self._moving else Fixed(value) for name, value in memory.items()}

    def step(
        self, tokens: Int[Tensor, "B"], state: dict[str, Tensor | Fixed]
    ) -> tuple[Float[Tensor, "B V"], dict[str, Tensor | Fixed]]:
        flat = {name: value.value if isinstance(value, Fixed) else value for name, value in state.items()}
        log_probs, *moved = _run(self._step, self._outputs, {"tokens": tokens, **flat})
        return log_probs, state | dict(zip(self._moving, moved, strict=True))


def _session(path: Path) -> Any:
    """One thread: batches run side by side, each on its own (see saccade.decode.workers)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no class of its own
        raise RunError(f"{path}: cannot be run by onnxruntime: {str(error).splitlines()[0]}") from None


def _run(session: Any, outputs: Sequence[str], inputs: Mapping[str, Tensor]) -> list[Tensor]:
    """Tensors in and out, over the same memory."""
    found = session.run(outputs, {name: tensor.numpy() for name, tensor in inputs.items()})
    return [torch.from_numpy(array) for array in found]
