"""ONNX: a folder with the two graphs of a model, its tokenizers and its search settings, run by onnxruntime."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.data.batches import Padded
from saccade.decode.loops import SingleHypothesis, SingleRow
from saccade.decode.search_engine import SearchEngine
from saccade.errors import RunError, SaccadeError
from saccade.formats.exported import ExportableRun, ExportConfig, read_exported, write_exported
from saccade.formats.onnx_graphs import NEXT_STATE_PREFIX, Unexportable, graphs
from saccade.places import PerSentence
from saccade.recipe import Recipe, kind_of, task_of
from saccade.runs.files import FileWriter, read_json
from saccade.shapes import Float, Int

ENCODER_GRAPH_FILE, STEP_GRAPH_FILE = "encoder.onnx", "step.onnx"
MAX_INLINE_WEIGHTS = 1_500_000_000  # bytes of weights that a graph's file may hold itself: protobuf ends at 2 GB


# ── writing ───────────────────────────────────────────────────────────────────────────────────────


def why_not(recipe: Recipe) -> str | None:
    """The key that stands in the way of an export; None if nothing does."""
    if not task_of(recipe).writes:
        return f'task: "{kind_of(recipe.task)}" has no decoder that writes; models for "translation" can be exported'
    return None


def write(run: ExportableRun, folder: Path) -> None:
    """All that onnxruntime needs to translate as the run does, in one folder."""
    if reason := why_not(run.recipe):
        raise RunError(f"{run.checkpoint}: cannot be exported to ONNX: {reason}")
    try:
        encoder, step = graphs(run.model)
    except Unexportable as refusal:
        raise RunError(f"{run.checkpoint}: cannot be exported to ONNX: {refusal}") from None
    weights = sum(weight.numel() * weight.element_size() for weight in run.model.parameters())
    beside = weights > MAX_INLINE_WEIGHTS
    model = _graph_writers(ENCODER_GRAPH_FILE, encoder, beside) | _graph_writers(STEP_GRAPH_FILE, step, beside)
    write_exported(run, folder, "onnx", model, (run.model.encoder.longest or 0, run.model.decoder.longest or 0))


def _graph_writers(name: str, graph: Any, beside: bool) -> dict[str, FileWriter]:
    """A graph's file, and one for its weights where they are too many."""
    weights: dict[str, FileWriter] = {f"{name}.data": lambda path: None} if beside else {}  # written with the graph
    return {name: lambda path: _save(graph, path, beside)} | weights


def _save(graph: Any, path: Path, beside: bool) -> None:
    import onnx

    graph.save(path, external_data=beside)
    onnx.checker.check_model(path)


# ── running ───────────────────────────────────────────────────────────────────────────────────────


def open(folder: Path) -> SearchEngine:  # noqa: A001 - the verb of every format
    """The engine of a folder that `write` has written, after every byte of it was checked."""
    deployed = read_exported(folder)
    for name in (ENCODER_GRAPH_FILE, STEP_GRAPH_FILE):
        if name not in read_json(folder / "manifest.json")["files"]:
            raise RunError(f"{folder / 'manifest.json'}: does not list {name}; export the run again")
    return SearchEngine(OnnxModel(folder, deployed.config).session, deployed.source, deployed.target)


class OnnxModel:
    """The two graphs as a search engine sees them. A state is a flat dict of tensors, which share their memory with
    onnxruntime's; what of it a step never changes is `Fixed`."""

    def __init__(self, folder: Path, package: ExportConfig):
        self._encoder, self._step = _session(folder / ENCODER_GRAPH_FILE), _session(folder / STEP_GRAPH_FILE)
        self.longest, self._source_places = package.target_places or None, package.source_places
        given = {value.name for value in self._encoder.get_outputs()}
        self._moving = [value.name.removeprefix(NEXT_STATE_PREFIX) for value in self._step.get_outputs()][1:]
        wanted = {value.name for value in self._step.get_inputs()} - {"tokens"}
        if wanted != given or not wanted >= {*self._moving}:
            raise RunError(
                f"{folder}: {ENCODER_GRAPH_FILE} and {STEP_GRAPH_FILE} do not belong together; export the run again"
            )
        self._outputs = ["log_probs", *(NEXT_STATE_PREFIX + name for name in self._moving)]

    def session(self) -> "AbstractContextManager[OnnxModel]":
        return nullcontext(self)

    def encode(self, source: Padded) -> dict[str, Tensor]:
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

    def start(self, memory: Mapping[str, Tensor], rows: int) -> dict[str, Tensor | PerSentence]:
        return {name: value if name in self._moving else PerSentence(value) for name, value in memory.items()}

    def step(
        self, tokens: Int[Tensor, "B"], state: dict[str, Tensor | PerSentence]
    ) -> tuple[Float[Tensor, "B V"], dict[str, Tensor | PerSentence]]:
        flat = {name: value.value if isinstance(value, PerSentence) else value for name, value in state.items()}
        log_probs, *moved = _run(self._step, self._outputs, {"tokens": tokens, **flat})
        return log_probs, state | dict(zip(self._moving, moved, strict=True))

    def single(self, memory: Mapping[str, Tensor]) -> SingleHypothesis:
        return SingleRow(self, memory)


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
