"""A model as two ONNX graphs: one reads a batch of sources and gives the state before the first token, the other takes
one step of the decoder."""

import copy
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.onnx import OnnxExporterError

from saccade.models.assemble import Model
from saccade.models.contracts import Decoder, Encoder
from saccade.parts.cells import RecurrentNet
from saccade.parts.heads import Head
from saccade.parts.positions import Learned, Sinusoidal, sinusoid
from saccade.places import PerSentence, Places, select
from saccade.shapes import Bool, Float, Ids, Int, States

OPSET = 18  # the one that torch's exporter writes itself; for a later one it would convert
NEXT_STATE_PREFIX = "next."  # what a step makes of the state `x` is called `next.x`


class Unexportable(Exception):
    """A part cannot go into a graph."""


# ── the state, flat and by name ───────────────────────────────────────────────────────────────────


def mapped(state: Any, change: Callable[[str, Tensor, bool], Any], path: str = "", fixed: bool = False) -> Any:
    """The same nesting with change(path, tensor, whether a memory gave it) for every tensor."""

    def below(key: Any, value: Any) -> Any:
        return mapped(value, change, f"{path}.{key}" if path else str(key), fixed)

    if isinstance(state, Tensor):
        return change(path, state, fixed)
    if isinstance(state, PerSentence):
        return PerSentence(mapped(state.value, change, path, True))
    if isinstance(state, dict):
        return {key: below(key, value) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(below(number, value) for number, value in enumerate(state))
    if is_dataclass(state) and not isinstance(state, type):
        return replace(state, **{field.name: below(field.name, getattr(state, field.name)) for field in fields(state)})
    return state


class StateLayout:
    """The tensors of a decoder's state by name. A tensor that stands at many places, such as what is padding, has the
    name of the first."""

    def __init__(self, state: Any):
        self._like = state
        self._name: dict[str, str] = {}
        self.fixed: set[str] = set()
        seen: dict[int, str] = {}

        def note(path: str, tensor: Tensor, fixed: bool) -> None:
            self._name[path] = seen.setdefault(id(tensor), path) if fixed else path
            if fixed:
                self.fixed.add(self._name[path])

        mapped(state, note)

    def flat(self, state: Any) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        mapped(state, lambda path, tensor, _: found.setdefault(self._name[path], tensor))
        return found

    def nested(self, tensors: Mapping[str, Tensor]) -> Any:
        return mapped(self._like, lambda path, _, __: tensors[self._name[path]])


# ── what a graph cannot hold, in words that it can ────────────────────────────────────────────────


class ComputedSinusoids(nn.Module):
    """Sinusoids of any place: a table that grows is no part of a graph. All rows stand at the same place."""

    longest = None

    def __init__(self, position: Sinusoidal):
        super().__init__()

    def embed(self, x: States, places: Places) -> States:
        return x + sinusoid(places.at[:1], x.shape[-1]).to(x.dtype)


class LearnedTable(nn.Module):
    """Learned places; whoever runs the graph looks after its end."""

    def __init__(self, position: Learned):
        super().__init__()
        self.longest, self.table = position.longest, position.table

    def embed(self, x: States, places: Places) -> States:
        return x + self.table(places.at)


# torch's name of a net → ONNX's, where its gates stand in torch's order, and what sets it right
ONNX_RNN_OPERATORS: dict[str, tuple[str, tuple[int, ...], dict[str, int]]] = {
    "RNN_TANH": ("RNN", (0,), {}),
    "GRU": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "LSTM": ("LSTM", (0, 3, 1, 2), {}),
}


class OnnxRecurrentNet(nn.Module):
    """A recurrent net over whole sequences by ONNX's own operator, which minds the length of each row: torch packs the
    rows for that, and packing does not go into a graph."""

    def __init__(self, cell: RecurrentNet):
        super().__init__()
        self.backward_width, self.width, self.depth = cell.backward_width, cell.net.hidden_size, cell.net.num_layers
        self.operator, self.gates, self.options = ONNX_RNN_OPERATORS[cell.net.mode]
        for layer in range(self.depth):
            for name, weight in zip("wrb", self._layer(cell.net, layer), strict=True):
                self.register_buffer(f"{name}{layer}", weight)

    def _layer(self, net: nn.RNNBase, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Input weights, recurrent weights and both biases, one row a direction."""
        sides = [f"_l{layer}", f"_l{layer}_reverse"] if self.backward_width else [f"_l{layer}"]
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        into, own, *biases = (torch.stack([self._turned(net, kind + side) for side in sides]) for kind in kinds)
        return into, own, torch.cat(biases, 1)

    def _turned(self, net: nn.RNNBase, name: str) -> Tensor:
        gates = getattr(net, name).detach().split(self.width)
        return torch.cat([gates[i] for i in self.gates])

    def whole(self, x: Float[Tensor, "B T I"], places: Places, state: None = None) -> tuple[States, None]:
        lengths = places.keep.sum(1).clamp(min=1).to(torch.int32)
        y = x.transpose(0, 1)
        options = {"hidden_size": self.width, "direction": "bidirectional" if self.backward_width else "forward"}
        for layer in range(self.depth):
            weights = [getattr(self, f"{name}{layer}") for name in "wrb"]
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


def _exportable(model: Model) -> Model:
    """A copy in which every part can go into a graph. A decoder steps by plain operations, so its cell stays."""
    model = copy.deepcopy(model).eval().requires_grad_(False)
    _replace(model, {Sinusoidal: ComputedSinusoids, Learned: LearnedTable})
    _replace(cast(nn.Module, model.encoder), {RecurrentNet: OnnxRecurrentNet})
    return model


def _replace(root: nn.Module, others: Mapping[type, Callable[[Any], nn.Module]]) -> None:
    for parent in [*root.modules()]:
        for name, child in [*parent.named_children()]:
            if other := others.get(type(child)):
                setattr(parent, name, other(child))


# ── the two graphs ────────────────────────────────────────────────────────────────────────────────


class EncoderGraph(nn.Module):
    """Sources → the state before the first token."""

    def __init__(self, encoder: Encoder, decoder: Decoder, layout: StateLayout, names: list[str]):
        super().__init__()
        self.encoder, self.decoder, self.layout, self.names = encoder, decoder, layout, names

    def forward(self, ids: Ids, keep: Bool[Tensor, "B S"]) -> tuple[Tensor, ...]:
        state = self.layout.flat(self.decoder.start(self.encoder.encode(ids, keep), ids.shape[0]))
        return tuple(_empty(state[name], ids.shape[0]) for name in self.names)


def _empty(tensor: Tensor, rows: Any) -> Tensor:
    """A cache without entries needs nothing computed for it."""
    return tensor.new_zeros(rows, *tensor.shape[1:]) if 0 in tensor.shape[1:] else tensor


class StepGraph(nn.Module):
    """A token of each hypothesis and the state → log-probabilities, and what of the state has changed."""

    def __init__(self, decoder: Decoder, head: Head, layout: StateLayout, moving: list[str]):
        super().__init__()
        self.decoder, self.head, self.layout, self.moving = decoder, head, layout, moving

    def forward(self, tokens: Int[Tensor, "B"], state: dict[str, Tensor]) -> tuple[Tensor, ...]:
        hidden, after = self.decoder.step(tokens[:, None], self.layout.nested(state))
        flat = self.layout.flat(after)
        return self.head.log_probs(hidden[:, -1]), *(flat[name] for name in self.moving)


@dataclass(frozen=True)
class Example:
    """Sizes to trace with. No two are the same, and none is 0 or 1, which torch takes for constants."""

    sentences: int
    beam: int
    source: int
    past: int

    def sources(self) -> dict[str, Tensor]:
        ids = torch.ones(self.sentences, self.source, dtype=torch.long)
        return {"ids": ids, "keep": ids > 0}

    def state(self, model: Model) -> Any:
        """After `past` steps of a beam."""
        assert model.decoder is not None
        state = model.decoder.start(model.encoder.encode(*self.sources().values()), self.sentences)
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


EXAMPLE = Example(sentences=2, beam=2, source=5, past=3)
SECOND_EXAMPLE = Example(sentences=3, beam=3, source=6, past=4)


def _free(one: Tensor, other: Tensor) -> dict[int, str]:
    """The axes of a tensor that differ between two examples, and what they are."""
    sizes = enumerate(zip(one.shape, other.shape, strict=True))
    return {axis: EXAMPLE.names()[size] for axis, (size, another) in sizes if size != another}


@torch.no_grad()
def graphs(model: Model) -> tuple[Any, Any]:
    """The graphs of a model that writes: `ids`, `keep` → state; `tokens`, state → `log_probs`, `next.` state."""
    model = _exportable(model)
    assert model.decoder is not None
    state, other = EXAMPLE.state(model), SECOND_EXAMPLE.state(model)
    layout = StateLayout(state)
    flat, other = layout.flat(state), layout.flat(other)
    moving = [name for name in flat if name not in layout.fixed]
    step = _traced(
        StepGraph(model.decoder, model.head, layout, moving),
        {"tokens": EXAMPLE.tokens(), "state": flat},
        {"tokens": {0: "hypotheses"}, "state": {name: _free(flat[name], other[name]) for name in flat}},
        ["tokens", *flat],
        ["log_probs", *(NEXT_STATE_PREFIX + name for name in moving)],
    )
    needed = _needed(step, moving)
    reading = EncoderGraph(model.encoder, model.decoder, layout, needed)
    free = {0: "sentences", 1: "source"}
    encoder = _traced(reading, EXAMPLE.sources(), {"ids": free, "keep": free}, ["ids", "keep"], needed)
    return encoder, step


def _needed(step: Any, moving: list[str]) -> list[str]:
    """The state that a step reads; what of a memory it never looks at is left out of its inputs."""
    inputs = step.model.graph.inputs
    for value in [v for v in inputs if not v.uses() and v.name not in ("tokens", *moving)]:
        inputs.remove(value)
    return [value.name for value in inputs if value.name != "tokens"]


def _traced(
    module: nn.Module, example: dict[str, Any], free: dict[str, Any], inputs: list[str], outputs: list[str]
) -> Any:
    with _quiet():
        try:
            program = torch.onnx.export(
                module.eval(),
                kwargs=example,
                dynamo=True,  # the older exporter is on its way out, and takes what depends on a size for a constant
                dynamic_shapes=free,
                input_names=inputs,
                output_names=outputs,
                opset_version=OPSET,
                custom_translation_table={torch.ops.aten.repeat_interleave.self_int: _each_repeated},
                verbose=False,
            )
        except OnnxExporterError as error:
            raise Unexportable(_blame(error, module)) from error
    assert program is not None
    _forget_origins(program.model)
    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch's exporter warns of what it does itself, and tells of packages that nobody asked for."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def _blame(error: Exception, module: nn.Module) -> str:
    """The innermost part that was at work when tracing failed, and why it did."""
    cause = error.__cause__ or error
    names = {id(part): f"{name} ({type(part).__name__})" for name, part in module.named_modules() if name}
    part = "a part of the model"
    for frame, _ in traceback.walk_tb(cause.__traceback__):
        part = names.get(id(frame.f_locals.get("self")), part)
    return f"{part}: does not go into a graph: {next(iter(str(cause).splitlines()), type(cause).__name__)}"


def _forget_origins(model: Any) -> None:
    """The exporter notes with every node which line of which file on this machine it comes from."""
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.metadata_props.clear()


def _each_repeated(rows: Any, count: Any, dim: int = 0, output_size: Any = None) -> Any:
    """Each row `count` times: onnxscript's own translation puts a count that is no constant on the wrong axis."""
    import onnxscript

    op: Any = onnxscript.opset18
    assert dim == 0
    one, rest = op.Constant(value_ints=[1]), op.Constant(value_ints=[1] * (len(rows.shape) - 1))
    counted = op.Concat(one, op.Reshape(count, op.Constant(value_ints=[-1])), rest, axis=0)
    shape = op.Concat(op.Constant(value_ints=[-1]), op.Shape(rows, start=1), axis=0)
    return op.Reshape(op.Expand(op.Unsqueeze(rows, one), counted), shape)
