"""Export to ONNX, and the engine that runs it with onnxruntime: a folder with the encoder graph and the decoder step
graph of a model, its tokenizers and its search settings."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.onnx import ONNXProgram

from saccade.config import choices_of, kind_of
from saccade.data.batches import Padded
from saccade.decode.loops import SingleHypothesis, SingleRow
from saccade.decode.search_engine import SearchEngine
from saccade.devices import CPU
from saccade.errors import RunError, SaccadeError, remedy
from saccade.formats.export import Unsupported
from saccade.formats.exported import EXPORT_AGAIN, ExportableRun, file_copiers, read_exported, write_exported
from saccade.formats.known_options import why_unknown
from saccade.formats.onnx_check import first_difference
from saccade.formats.onnx_graphs import NEXT_STATE_PREFIX, REPLACED_KINDS, Unexportable, graphs
from saccade.places import PerSentence
from saccade.recipe import Recipe
from saccade.runs.files import MANIFEST, read_json
from saccade.shapes import Float, Int
from saccade.tasks import kinds_with

ENCODER_GRAPH_FILE, STEP_GRAPH_FILE = "encoder.onnx", "step.onnx"
MAX_INLINE_WEIGHTS = 1_500_000_000  # bytes of weights inside a graph's file; protobuf is limited to 2 GB


# ── export ────────────────────────────────────────────────────────────────────────────────────────


def why_not(recipe: Recipe) -> str | None:
    """The config key that prevents an export, with the reason; None if the model can be exported."""
    if not recipe.built_task.text_to_text:
        kinds = kinds_with("text_to_text")
        return f'task: "{kind_of(recipe.task)}" has no decoder; only models for "{kinds}" can be exported'
    if kind_of(recipe.model.encoder) == "none":
        return 'model.encoder: only models with an encoder can be exported; train with another kind than "none"'
    replaced = [(key, choice) for key, choice in choices_of(recipe.model, "model") if choice.factory in REPLACED_KINDS]
    return next(filter(None, (why_unknown(key, choice, REPLACED_KINDS, "ONNX") for key, choice in replaced)), None)


def write(run: ExportableRun, folder: Path) -> None:
    """Write everything that onnxruntime needs to translate like the run."""
    if reason := why_not(run.recipe):
        raise RunError(f"{run.checkpoint}: cannot be exported to ONNX: {reason}")
    encoder, decoder = run.model.encoder, run.model.decoder
    assert encoder is not None
    assert decoder is not None
    try:
        encoder_graph, step_graph = graphs(run.model)
    except Unexportable as error:
        raise Unsupported(f"torch.onnx cannot convert {error}; replace this part of the model") from None
    weights = sum(weight.numel() * weight.element_size() for weight in run.model.parameters())
    with tempfile.TemporaryDirectory() as scratch:
        for name, graph in ((ENCODER_GRAPH_FILE, encoder_graph), (STEP_GRAPH_FILE, step_graph)):
            _save(graph, Path(scratch) / name, external=weights > MAX_INLINE_WEIGHTS)
        _check(run, OnnxModel(Path(scratch), encoder.longest, decoder.longest))
        max_lengths = encoder.longest or 0, decoder.longest or 0
        write_exported(run, folder, "onnx", file_copiers(Path(scratch)), max_lengths)


def _save(graph: ONNXProgram, path: Path, external: bool) -> None:
    """Save a graph; with `external`, its weights are in a second file."""
    import onnx

    graph.save(path, external_data=external)
    onnx.checker.check_model(path)


def _check(run: ExportableRun, graphs: "OnnxModel") -> None:
    """Refuse graphs that do not compute what the model computes."""
    difference = first_difference(run.model, graphs, (run.codecs.source.size, run.codecs.target.size))
    if difference:
        raise Unsupported(
            f"the ONNX graphs do not compute what the model computes: {difference}; probably a part of the model reads "
            "a Python value that is not the same in every step, such as `places.end`, which a graph holds as a "
            "constant: let the part read the tensors `places.at` and `places.keep` instead"
        )


# ── the engine ────────────────────────────────────────────────────────────────────────────────────


def open(folder: Path) -> SearchEngine:  # noqa: A001 - all formats have `open`
    """The engine that runs an exported folder, after its checksums were verified."""
    with remedy(EXPORT_AGAIN):
        exported = read_exported(folder)
        for name in (ENCODER_GRAPH_FILE, STEP_GRAPH_FILE):
            if name not in read_json(folder / MANIFEST)["files"]:
                raise RunError(f"{folder / MANIFEST}: does not list {name}")
    config = exported.config
    model = OnnxModel(folder, config.max_source_length or None, config.max_target_length or None)
    return SearchEngine(model.session, exported.source, exported.target)


OnnxState = dict[str, Tensor | PerSentence]


class OnnxModel:
    """The two graphs as a decodable model. A state is a flat dict of tensors, which share memory with onnxruntime's
    arrays; those that no step changes are `PerSentence`."""

    def __init__(self, folder: Path, longest_source: int | None, longest_output: int | None):
        self._encoder, self._step = _session(folder / ENCODER_GRAPH_FILE), _session(folder / STEP_GRAPH_FILE)
        self._longest_source, self._longest_output = longest_source, longest_output
        self._encoder_outputs = [value.name for value in self._encoder.get_outputs()]
        # the first output of a step is log_probs, the others are the state that it changes
        self._changing = [value.name.removeprefix(NEXT_STATE_PREFIX) for value in self._step.get_outputs()][1:]
        state = {value.name for value in self._step.get_inputs()} - {"tokens"}
        if state != {*self._encoder_outputs} or not state >= {*self._changing}:
            raise RunError(
                f"{folder}: {ENCODER_GRAPH_FILE} and {STEP_GRAPH_FILE} are of different models; run `saccade export` "
                "again"
            )
        self._step_outputs = ["log_probs", *(NEXT_STATE_PREFIX + name for name in self._changing)]

    device = CPU  # the only device for which sessions are opened

    def longest_output(self, source_tokens: int) -> int | None:
        return self._longest_output

    def session(self) -> "AbstractContextManager[OnnxModel]":
        return nullcontext(self)

    def encode(self, source: Padded) -> dict[str, Tensor]:
        """The decoder state before the first token."""
        length = source.values.shape[1]
        if self._longest_source and length > self._longest_source:
            raise SaccadeError(
                f"the source has {length} tokens, past the {self._longest_source} learned positions; split the "
                "text, or train with a larger model.encoder.position.longest or with model.encoder.position = "
                '"sinusoidal", which has no limit'
            )
        keep = torch.ones_like(source.values, dtype=torch.bool) if source.keep is None else source.keep
        tensors = _run(self._encoder, self._encoder_outputs, {"ids": source.values, "keep": keep})
        return dict(zip(self._encoder_outputs, tensors, strict=True))

    def start(self, memory: Mapping[str, Tensor], rows: int) -> OnnxState:
        return {name: value if name in self._changing else PerSentence(value) for name, value in memory.items()}

    def step(self, tokens: Int[Tensor, "B"], state: OnnxState) -> tuple[Float[Tensor, "B V"], OnnxState]:
        tensors = {name: value.value if isinstance(value, PerSentence) else value for name, value in state.items()}
        log_probs, *changed = _run(self._step, self._step_outputs, {"tokens": tokens, **tensors})
        return log_probs, state | dict(zip(self._changing, changed, strict=True))

    def single(self, memory: Mapping[str, Tensor]) -> SingleHypothesis:
        return SingleRow(self, memory)


def _session(path: Path) -> Any:
    """An onnxruntime session with one thread: several batches run in parallel (see saccade.decode.workers)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base class
        raise RunError(
            f"{path}: onnxruntime cannot load it: {str(error).splitlines()[0]}; run `saccade export` again"
        ) from None


def _run(session: Any, outputs: Sequence[str], inputs: Mapping[str, Tensor]) -> list[Tensor]:
    """Run a graph on tensors, without copying inputs or outputs."""
    arrays = session.run(outputs, {name: tensor.numpy() for name, tensor in inputs.items()})
    return [torch.from_numpy(array) for array in arrays]
