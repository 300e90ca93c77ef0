"""The number of operations between an input and an output in torch's autograd graph: `python docs/claims/paths.py`."""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from common import BLUE, GRAY, GREEN, ORANGE, RED, label, panels, save, table, update_page
from torch import Tensor, nn
from torch.autograd.graph import Node

from saccade import capture
from saccade.inputs import Tokens
from saccade.models.blocks import Standard
from saccade.models.recurrent import RecurrentDecoder
from saccade.parts import Additive, AtStart, MultiHead, RecurrentNet, Unprojected, gru, lstm, tanh
from saccade.parts.contexts import Context
from saccade.places import Memory, Places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DIM, LENGTHS, TABLE_LENGTHS, WORDS = 8, (2, 4, 8, 16, 32, 64, 128, 256), (8, 64, 256), 12

# Nodes that only move or reshape data and compute nothing.
MOVES = {"Alias", "Cat", "Clone", "Expand", "ReshapeAlias", "Select", "Slice", "Split", "Squeeze", "Stack", "T"}
MOVES |= {"Transpose", "Unbind", "UnsafeView", "Unsqueeze", "View", "torch::autograd::AccumulateGrad"}


def cost(node: Node) -> int:
    """1 for an operation, 0 for a node of MOVES."""
    return int(node.name().split("Backward")[0] not in MOVES)


def predecessors(node: Node) -> Iterator[Node]:
    return (earlier for earlier, _ in node.next_functions if earlier is not None)


def shortest_paths(output: Tensor, inputs: Sequence[Tensor]) -> list[int | None]:
    """The smallest number of operations on a path from each input to the output (Dijkstra); None without a path."""
    start = root(output)
    distances: dict[Node, int] = {}
    tie_breaker = itertools.count()
    queue = [(cost(start), next(tie_breaker), start)]
    while queue:
        length, _, node = heapq.heappop(queue)
        if node in distances:
            continue
        distances[node] = length
        for earlier in predecessors(node):
            heapq.heappush(queue, (length + cost(earlier), next(tie_breaker), earlier))
    lengths = {id(node.variable): length for node, length in distances.items() if hasattr(node, "variable")}  # type: ignore[attr-defined]
    return [lengths.get(id(x)) for x in inputs]


def depth(output: Tensor, inputs: Sequence[Tensor]) -> int:
    """The largest number of operations on a path from an input to the output: these must run one after the other."""
    input_ids = {id(x) for x in inputs}
    depths: dict[Node, float] = {}
    stack = [root(output)]
    while stack:
        node = stack[-1]
        missing = [earlier for earlier in predecessors(node) if earlier not in depths]
        if missing:
            stack += missing
            continue
        stack.pop()
        leaf = 0.0 if id(getattr(node, "variable", None)) in input_ids else float("-inf")
        depths[node] = cost(node) + max((depths[earlier] for earlier in predecessors(node)), default=leaf)
    return int(depths[root(output)])


def root(output: Tensor) -> Node:
    assert output.grad_fn is not None
    return output.grad_fn


def input_vectors(count: int) -> list[Tensor]:
    """A separate leaf tensor for each position, so that the graph distinguishes them."""
    return [torch.randn(1, DIM, requires_grad=True) for _ in range(count)]


def recurrent_outputs(cell: RecurrentNet, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a recurrent network, computed step by step with the same result as `cell.whole`."""
    state, states = cell.initial_state(torch.zeros(1, DIM * cell.state_vectors)), []
    for x in inputs:
        y, state = cell.step(cell.input_gates(x), state)
        states.append(y)
    return states


def attention_output(parts: Sequence[nn.Module], inputs: Sequence[Tensor]) -> Tensor:
    """The last output of a stack of causal attention layers or blocks. The positions are processed one by one, so that
    each has its own nodes, and under `capture`, so that no operations are fused."""
    states = [part.start(None, 1) for part in parts]  # type: ignore[operator]
    x = inputs[0][:, None]
    with capture(nn.ModuleList(parts)):
        for t, vector in enumerate(inputs):
            x = vector[:, None]
            for i, part in enumerate(parts):
                x, states[i] = part(x, Places.of(x, keep=None, start=torch.tensor([t])), states[i])
    return x[:, 0]


def block() -> nn.Module:
    return Standard(DIM, causal=True, self_=lambda dim, causal: MultiHead(dim, causal, heads=2))


MODELS: dict[str, tuple[Callable[[Sequence[Tensor]], Tensor], str]] = {
    "tanh": (lambda inputs: recurrent_outputs(tanh(DIM, DIM), inputs)[-1], BLUE),
    "GRU": (lambda inputs: recurrent_outputs(gru(DIM, DIM), inputs)[-1], RED),
    "LSTM": (lambda inputs: recurrent_outputs(lstm(DIM, DIM), inputs)[-1], ORANGE),
    "self-attention": (lambda inputs: attention_output([MultiHead(DIM, causal=True, heads=2)], inputs), GREEN),
    "six Transformer blocks": (lambda inputs: attention_output([block() for _ in range(6)], inputs), GRAY),
}


def measure(name: str) -> list[tuple[int, int]]:
    """For each length: the path from the first input to the last output, and the depth of the graph."""
    measurements = []
    for length in LENGTHS:
        inputs = input_vectors(length)
        output = MODELS[name][0](inputs)
        path = shortest_paths(output, inputs)[0]
        assert path is not None
        measurements.append((path, depth(output, inputs)))
    return measurements


def translation_paths(context: Callable[..., Context]) -> Tensor:
    """Path lengths [target source] in a GRU encoder-decoder whose decoder gets the source from `context`."""
    source, decoder = input_vectors(WORDS), RecurrentDecoder(DIM, Tokens(5), cross=context)
    states = recurrent_outputs(gru(DIM, DIM), source)
    stacked = torch.stack(states, 1)
    state = decoder.start(Memory(stacked, Places.of(stacked, keep=None), states[-1]), rows=1)
    rows = []
    for _ in range(WORDS):
        hidden, state = decoder.step(torch.ones(1, 1, dtype=torch.long), state)
        rows.append(shortest_paths(hidden, source))
    return torch.tensor(rows)


def draw(measurements: dict[str, list[tuple[int, int]]], maps: Sequence[Tensor]) -> None:
    figure, axes = panels(4, [0.9, 0.9, 1, 1])
    for column, title in enumerate(("path, first to last", "depth")):
        axes[column].set(title=title, xlabel="positions n", xscale="log", yscale="log", ylim=(1.5, 3000), xlim=(2, 256))
        axes[column].set_xticks(LENGTHS[::2], [str(n) for n in LENGTHS[::2]])
        axes[column].minorticks_off()
        for name, curve in measurements.items():
            axes[column].plot(
                LENGTHS, [point[column] for point in curve], color=MODELS[name][1], marker="o", markersize=2.5
            )
    axes[0].set_ylabel("operations")
    for name, curve in measurements.items():
        title = name.replace("self-", "").replace("Transformer ", "")
        label(axes[0], title, LENGTHS[-1], curve[-1][0], MODELS[name][1])
        if name != "GRU":  # its curve nearly coincides with that of the LSTM
            label(axes[1], title.replace("LSTM", "LSTM, GRU"), LENGTHS[-1], curve[-1][1], MODELS[name][1])
    draw_path_maps(figure, axes[2:], maps)
    save(figure, "paths")


def draw_path_maps(figure: "Figure", axes: "list[Axes]", maps: Sequence[Tensor]) -> None:
    """Heat maps of the path lengths from each source word to each target word."""
    for panel, lengths, title in zip(axes, maps, ("no attention", "attention"), strict=True):
        panel.grid(False)
        panel.imshow(lengths, cmap="viridis", vmin=0, vmax=int(maps[0].max()))
        panel.set(title=title, xlabel="source word", xticks=[0, WORDS - 1], yticks=[0, WORDS - 1])
        panel.set_xticklabels(["1", str(WORDS)])
        panel.set_yticklabels(["1", str(WORDS)])
    axes[0].set_ylabel("target word")
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.75, label="operations")


def main() -> None:
    torch.manual_seed(0)
    measurements = {name: measure(name) for name in MODELS}
    no_attention = translation_paths(AtStart)
    attention = translation_paths(lambda dim: Unprojected(dim, score=Additive))
    draw(measurements, (no_attention, attention))
    rows = [
        [name, *(f"{curve[LENGTHS.index(n)][column]}" for column in (0, 1) for n in TABLE_LENGTHS)]
        for name, curve in measurements.items()
    ]
    header = ["operations", *(f"{title}, n = {n}" for title in ("path", "depth") for n in TABLE_LENGTHS)]
    word_pairs = [
        [name, *(str(int(lengths[at])) for at in ((0, WORDS - 1), (0, 0), (WORDS - 1, 0))), str(int(lengths.max()))]
        for name, lengths in (("no attention", no_attention), ("additive attention", attention))
    ]
    titles = ["last word → first", "first → first", "first → last", "longest"]
    update_page("paths", table(header, rows), table([f"GRU translator, {WORDS} words", *titles], word_pairs))


if __name__ == "__main__":
    main()
