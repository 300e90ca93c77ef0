"""A model as two ONNX graphs: the encoder graph maps a batch of sources to the decoder state before the first token,
and the step graph computes one decoder step."""

import copy
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.onnx import OnnxExporterError, ONNXProgram

from saccade.formats.known_options import KnownOptions
from saccade.models.assemble import Model
from saccade.models.contracts import Decoder, Encoder
from saccade.parts.cells import RecurrentNet, gru, lstm, tanh
from saccade.parts.heads import Head
from saccade.parts.positions import GrowingTable, Learned, Position
from saccade.places import DecoderState, PerSentence, Places, StatePath, map_state, select
from saccade.shapes import Bool, Float, Ids, Int, States

OPSET = 18  # what torch's exporter produces; it would have to convert to a later version
NEXT_STATE_PREFIX = "next."  # the step graph maps the state tensor `x` to the output `next.x`


class Unexportable(Exception):
    """A part of the model cannot be exported to a graph."""


# ── the state as named tensors ────────────────────────────────────────────────────────────────────


class StateLayout:
    """The tensors of a nested decoder state as a flat dict, and back. A name is the path of the tensor in the state. A
    tensor that occurs at several paths below `PerSentence`, such as the padding mask, has the name of the first."""

    def __init__(self, state: DecoderState):
        self._template = state
        self._name_of: dict[StatePath, str] = {}
        self.fixed: set[str] = set()  # the tensors that no step changes
        first_name: dict[int, str] = {}

        def name_changing(tensor: Tensor, path: StatePath) -> None:
            self._name_of[path] = ".".join(path)

        def name_fixed(tensor: Tensor, path: StatePath) -> None:
            self._name_of[path] = first_name.setdefault(id(tensor), ".".join(path))
            self.fixed.add(self._name_of[path])

        _map_tensors(state, name_changing, name_fixed)

    def flatten(self, state: DecoderState) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}

        def add(tensor: Tensor, path: StatePath) -> None:
            tensors.setdefault(self._name_of[path], tensor)

        _map_tensors(state, add, add)
        return tensors

    def unflatten(self, tensors: Mapping[str, Tensor]) -> DecoderState:
        def look_up(tensor: Tensor, path: StatePath) -> Tensor:
            return tensors[self._name_of[path]]

        return _map_tensors(self._template, look_up, look_up)


def _map_tensors(
    state: DecoderState,
    on_changing: Callable[[Tensor, StatePath], Tensor | None],
    on_fixed: Callable[[Tensor, StatePath], Tensor | None],
) -> DecoderState:
    """`map_state` with one function for the tensors below `PerSentence`, and one for the others."""

    def on_per_sentence(entry: PerSentence, path: StatePath) -> PerSentence:
        return PerSentence(map_state(entry.value, on_fixed, on_per_sentence, path))

    return map_state(state, on_changing, on_per_sentence)


# ── replacements for parts that cannot be exported ────────────────────────────────────────────────


class ComputedTable(nn.Module):
    """The rows of a table computed for each position, because a graph cannot hold a table that grows."""

    def __init__(self, table: GrowingTable):
        super().__init__()
        self.rows_of = table.rows_of

    def forward(self, places: Places) -> Float[Tensor, "B T W"]:
        return self.rows_of(places.at)


class LearnedTable(Position):
    """Learned positions without the check of their maximum length, which `OnnxModel` makes."""

    def __init__(self, position: Learned):
        super().__init__()
        self.longest, self.table = position.longest, position.table

    def embed(self, x: States, places: Places) -> States:
        return x + self.table(places.at)


# torch's mode → ONNX operator, the indices that bring torch's gates into ONNX's order, and attributes of the operator
ONNX_RNN_OPERATORS: dict[str, tuple[str, tuple[int, ...], dict[str, int]]] = {
    "RNN_TANH": ("RNN", (0,), {}),
    "GRU": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "LSTM": ("LSTM", (0, 3, 1, 2), {}),
}
ONNX_RNN_INPUTS = ("w", "r", "b")  # ONNX's names of the operator's weights: W, R and B


class OnnxRecurrentNet(nn.Module):
    """A recurrent net over whole sequences as ONNX's operator, which takes the length of each row. torch packs the rows
    instead, and packing cannot be exported."""

    def __init__(self, cell: RecurrentNet):
        super().__init__()
        self.backward_width, self.width, self.depth = cell.backward_width, cell.net.hidden_size, cell.net.num_layers
        self.operator, self.gates, self.options = ONNX_RNN_OPERATORS[cell.net.mode]
        for layer in range(self.depth):
            for name, weight in zip(ONNX_RNN_INPUTS, self._layer(cell.net, layer), strict=True):
                self.register_buffer(f"{name}{layer}", weight)

    def _layer(self, net: nn.RNNBase, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Input weights, recurrent weights and both biases, one row per direction."""
        directions = [f"_l{layer}", f"_l{layer}_reverse"] if self.backward_width else [f"_l{layer}"]
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weight_ih, weight_hh, *biases = (
            torch.stack([self._reordered(net, kind + direction) for direction in directions]) for kind in kinds
        )
        return weight_ih, weight_hh, torch.cat(biases, 1)

    def _reordered(self, net: nn.RNNBase, name: str) -> Tensor:
        gates = getattr(net, name).detach().split(self.width)
        return torch.cat([gates[i] for i in self.gates])

    def whole(self, x: Float[Tensor, "B T I"], places: Places, state: None = None) -> tuple[States, None]:
        lengths = places.keep.sum(1).clamp(min=1).to(torch.int32)
        y = x.transpose(0, 1)
        options = {"hidden_size": self.width, "direction": "bidirectional" if self.backward_width else "forward"}
        for layer in range(self.depth):
            weights = [getattr(self, f"{name}{layer}") for name in ONNX_RNN_INPUTS]
            y = torch.onnx.ops.symbolic(
                self.operator,
                (y, *weights, lengths),
                options | self.options,
                dtype=x.dtype,
                shape=(y.shape[0], 2 if self.backward_width else 1, y.shape[1], self.width),
                version=OPSET,
            )
            y = y.transpose(1, 2).flatten(2)
        return y.transpose(0, 1), None


# The kinds that are replaced, with the options that their replacements know of. All others are traced as they are.
REPLACED_KINDS: KnownOptions = {Learned: {"longest"}, gru: set(), lstm: set(), tanh: set()}


def _exportable(model: Model) -> Model:
    """A copy of the model in which every part can be exported. A recurrent decoder steps by plain operations, so its
    cell stays."""
    model = copy.deepcopy(model).eval().requires_grad_(False)
    _replace(model, {GrowingTable: ComputedTable, Learned: LearnedTable})
    _replace(model.get_submodule("encoder"), {RecurrentNet: OnnxRecurrentNet})
    return model


def _replace(root: nn.Module, replacements: Mapping[type, Callable[[Any], nn.Module]]) -> None:
    for parent in [*root.modules()]:
        for name, child in [*parent.named_children()]:
            if replacement := replacements.get(type(child)):
                setattr(parent, name, replacement(child))


# ── the two graphs ────────────────────────────────────────────────────────────────────────────────


class EncoderGraph(nn.Module):
    """Token ids and padding mask → the decoder state before the first token."""

    def __init__(self, encoder: Encoder, decoder: Decoder, layout: StateLayout, names: list[str]):
        super().__init__()
        self.encoder, self.decoder, self.layout, self.names = encoder, decoder, layout, names

    def forward(self, ids: Ids, keep: Bool[Tensor, "B S"]) -> tuple[Tensor, ...]:
        state = self.layout.flatten(self.decoder.start(self.encoder.encode(ids, keep), ids.shape[0]))
        return tuple(_without_computation(state[name], ids.shape[0]) for name in self.names)


def _without_computation(tensor: Tensor, rows: int) -> Tensor:
    """A tensor without entries (an empty cache) as a constant, so that the graph does not compute it."""
    return tensor.new_zeros(rows, *tensor.shape[1:]) if 0 in tensor.shape[1:] else tensor


class StepGraph(nn.Module):
    """The last token of each hypothesis and the state → log-probabilities and the changed tensors of the state."""

    def __init__(self, decoder: Decoder, head: Head, layout: StateLayout, changing: list[str]):
        super().__init__()
        self.decoder, self.head, self.layout, self.changing = decoder, head, layout, changing

    def forward(self, tokens: Int[Tensor, "B"], state: dict[str, Tensor]) -> tuple[Tensor, ...]:
        hidden, after = self.decoder.step(tokens[:, None], self.layout.unflatten(state))
        tensors = self.layout.flatten(after)
        return self.head.log_probs(hidden[:, -1]), *(tensors[name] for name in self.changing)


@dataclass(frozen=True)
class ExampleSizes:
    """Sizes to trace with. The numbers of sentences, hypotheses (sentences · beam), source positions and past steps are
    all different, so that a size identifies its axis (`names`), and none is 0 or 1, which torch would treat as
    constants."""

    sentences: int
    beam: int
    source: int
    past: int

    def sources(self) -> dict[str, Tensor]:
        ids = torch.ones(self.sentences, self.source, dtype=torch.long)
        return {"ids": ids, "keep": ids > 0}

    def state(self, model: Model) -> DecoderState:
        """The decoder state after `past` steps of beam search."""
        assert model.decoder is not None
        state = model.decoder.start(model.encode(*self.sources().values()), self.sentences)
        state = select(state, torch.arange(self.sentences).repeat_interleave(self.beam))
        for _ in range(self.past):
            _, state = model.decoder.step(self.tokens()[:, None], state)
        return state

    def tokens(self) -> Tensor:
        return torch.ones(self.sentences * self.beam, dtype=torch.long)

    def names(self) -> dict[int, str]:
        return {
            self.sentences: "sentences",
            self.sentences * self.beam: "hypotheses",
            self.source: "source",
            self.past: "past",
        }


EXAMPLE = ExampleSizes(sentences=2, beam=2, source=5, past=3)
SECOND_EXAMPLE = ExampleSizes(sentences=3, beam=3, source=6, past=4)


def _dynamic_axes(tensor: Tensor, second: Tensor) -> dict[int, str]:
    """The axes whose sizes differ between the two examples, with their names."""
    sizes = enumerate(zip(tensor.shape, second.shape, strict=True))
    return {axis: EXAMPLE.names()[size] for axis, (size, second_size) in sizes if size != second_size}


@torch.no_grad()
def graphs(model: Model) -> tuple[ONNXProgram, ONNXProgram]:
    """The encoder graph (`ids`, `keep` → state) and the step graph (`tokens`, state → `log_probs`, `next.` state)."""
    model = _exportable(model)
    assert model.encoder is not None
    assert model.decoder is not None
    state, second_state = EXAMPLE.state(model), SECOND_EXAMPLE.state(model)
    layout = StateLayout(state)
    tensors, second = layout.flatten(state), layout.flatten(second_state)
    changing = [name for name in tensors if name not in layout.fixed]
    step = _traced(
        StepGraph(model.decoder, model.head, layout, changing),
        {"tokens": EXAMPLE.tokens(), "state": tensors},
        {"tokens": {0: "hypotheses"}, "state": {name: _dynamic_axes(tensors[name], second[name]) for name in tensors}},
        ["tokens", *tensors],
        ["log_probs", *(NEXT_STATE_PREFIX + name for name in changing)],
    )
    state_names = _remove_unused_inputs(step, changing)
    encoder_graph = EncoderGraph(model.encoder, model.decoder, layout, state_names)
    axes = {0: "sentences", 1: "source"}
    encoder = _traced(encoder_graph, EXAMPLE.sources(), {"ids": axes, "keep": axes}, ["ids", "keep"], state_names)
    return encoder, step


def _remove_unused_inputs(step: ONNXProgram, changing: list[str]) -> list[str]:
    """Remove the inputs for parts of the memory that a step does not use; returns the names of the remaining state."""
    inputs = step.model.graph.inputs
    for value in [v for v in inputs if not v.uses() and v.name not in ("tokens", *changing)]:
        inputs.remove(value)
    return [str(value.name) for value in inputs if value.name != "tokens"]


def _traced(
    module: nn.Module, example: dict[str, Any], dynamic_axes: dict[str, Any], inputs: list[str], outputs: list[str]
) -> ONNXProgram:
    with _without_warnings():
        try:
            program = torch.onnx.export(
                module.eval(),
                kwargs=example,
                dynamo=True,  # the older exporter is deprecated, and treats values that depend on a size as constants
                dynamic_shapes=dynamic_axes,
                input_names=inputs,
                output_names=outputs,
                opset_version=OPSET,
                custom_translation_table={torch.ops.aten.repeat_interleave.self_int: _repeat_interleave},
                verbose=False,
            )
        except OnnxExporterError as error:
            raise Unexportable(_describe(error, module)) from error
    assert program is not None
    _remove_source_locations(program)
    return program


@contextmanager
def _without_warnings() -> Iterator[None]:
    """torch's exporter warns about its own code, and about optional packages."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def _describe(error: Exception, module: nn.Module) -> str:
    """The innermost part of the model that was running when tracing failed, and the cause."""
    cause = error.__cause__ or error
    names = {id(part): f"{name} ({type(part).__name__})" for name, part in module.named_modules() if name}
    part = "a part of the model"
    for frame, _ in traceback.walk_tb(cause.__traceback__):
        part = names.get(id(frame.f_locals.get("self")), part)
    return f"{part}: {next(iter(str(cause).splitlines()), type(cause).__name__)}"


def _remove_source_locations(program: ONNXProgram) -> None:
    """The exporter stores with every node the source file and line it comes from, as paths of this machine."""
    model = program.model
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.metadata_props.clear()


def _repeat_interleave(rows: Any, count: Any, dim: int = 0, output_size: Any = None) -> Any:
    """Repeat each row `count` times. onnxscript's own translation repeats along the wrong axis if the count is not a
    constant."""
    import onnxscript

    op: Any = onnxscript.opset18
    assert dim == 0
    one, rest = op.Constant(value_ints=[1]), op.Constant(value_ints=[1] * (len(rows.shape) - 1))
    counted = op.Concat(one, op.Reshape(count, op.Constant(value_ints=[-1])), rest, axis=0)
    shape = op.Concat(op.Constant(value_ints=[-1]), op.Shape(rows, start=1), axis=0)
    return op.Reshape(op.Expand(op.Unsqueeze(rows, one), counted), shape)
