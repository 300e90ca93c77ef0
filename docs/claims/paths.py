"""How many operations lie between an input and an output, in torch's own graph: `python docs/claims/paths.py`."""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from common import BLUE, GREEN, GREY, ORANGE, RED, label, panels, quote, save, table
from torch import Tensor, nn
from torch.autograd.graph import Node

from saccade import capture
from saccade.models.blocks import Standard
from saccade.models.recurrent import RecurrentDecoder
from saccade.parts import Additive, AtStart, MultiHead, RecurrentNet, Unprojected, gru, lstm, tanh
from saccade.places import Memory, Places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DIM, LENGTHS, SHOWN, WORDS = 8, (2, 4, 8, 16, 32, 64, 128, 256), (8, 64, 256), 12

# Nodes that only say where numbers are: they compute nothing.
MOVES = {"Alias", "Cat", "Clone", "Expand", "ReshapeAlias", "Select", "Slice", "Split", "Squeeze", "Stack", "T"}
MOVES |= {"Transpose", "Unbind", "UnsafeView", "Unsqueeze", "View", "torch::autograd::AccumulateGrad"}


def cost(node: Node) -> int:
    """1 for an operation, 0 for a move."""
    return int(node.name().split("Backward")[0] not in MOVES)


def before(node: Node) -> Iterator[Node]:
    return (earlier for earlier, _ in node.next_functions if earlier is not None)


def shortest(output: Tensor, inputs: Sequence[Tensor]) -> list[int | None]:
    """The fewest operations on any way from each input to the output; None where there is no way."""
    start = root(output)
    found: dict[Node, int] = {}
    turn = itertools.count()
    queue = [(cost(start), next(turn), start)]
    while queue:
        length, _, node = heapq.heappop(queue)
        if node in found:
            continue
        found[node] = length
        for earlier in before(node):
            heapq.heappush(queue, (length + cost(earlier), next(turn), earlier))
    lengths = {id(node.variable): length for node, length in found.items() if hasattr(node, "variable")}  # type: ignore[attr-defined]
    return [lengths.get(id(x)) for x in inputs]


def longest(output: Tensor, inputs: Sequence[Tensor]) -> int:
    """The most operations on any way from an input to the output: so many must follow one another."""
    ours = {id(x) for x in inputs}
    chain: dict[Node, float] = {}
    waiting = [root(output)]
    while waiting:
        node = waiting[-1]
        missing = [earlier for earlier in before(node) if earlier not in chain]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        first = 0.0 if id(getattr(node, "variable", None)) in ours else float("-inf")
        chain[node] = cost(node) + max((chain[earlier] for earlier in before(node)), default=first)
    return int(chain[root(output)])


def root(output: Tensor) -> Node:
    assert output.grad_fn is not None
    return output.grad_fn


def leaves(count: int) -> list[Tensor]:
    """A vector of its own for each place, so that the graph knows them apart."""
    return [torch.randn(1, DIM, requires_grad=True) for _ in range(count)]


def recurrent(cell: RecurrentNet, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The states of a recurrent net: `cell.step` is what `cell.whole` does, a step at a time."""
    state, states = cell.initial_state(torch.zeros(1, DIM * cell.state_vectors)), []
    for x in inputs:
        y, state = cell.step(cell.input_gates(x), state)
        states.append(y)
    return states


def attentive(parts: Sequence[nn.Module], inputs: Sequence[Tensor]) -> Tensor:
    """The last output of a stack of causal attentions or blocks. The places come one by one, so that each has nodes of
    its own, and someone listens, so that nothing is fused."""
    states = [part.start(None, 1) for part in parts]  # type: ignore[operator]
    x = inputs[0][:, None]
    with capture(nn.ModuleList(parts)):
        for t, vector in enumerate(inputs):
            x = vector[:, None]
            for number, part in enumerate(parts):
                x, states[number] = part(x, Places.of(x, keep=None, start=torch.tensor([t])), states[number])
    return x[:, 0]


def block() -> nn.Module:
    return Standard(DIM, causal=True, self_=lambda dim, causal: MultiHead(dim, causal, heads=2))


MODELS: dict[str, tuple[Callable[[Sequence[Tensor]], Tensor], str]] = {
    "tanh": (lambda inputs: recurrent(tanh(DIM, DIM), inputs)[-1], BLUE),
    "GRU": (lambda inputs: recurrent(gru(DIM, DIM), inputs)[-1], RED),
    "LSTM": (lambda inputs: recurrent(lstm(DIM, DIM), inputs)[-1], ORANGE),
    "self-attention": (lambda inputs: attentive([MultiHead(DIM, causal=True, heads=2)], inputs), GREEN),
    "six Transformer blocks": (lambda inputs: attentive([block() for _ in range(6)], inputs), GREY),
}


def along(name: str) -> list[tuple[int, int]]:
    """For each length: the path from the first input to the last output, and the depth of the graph."""
    found = []
    for length in LENGTHS:
        inputs = leaves(length)
        output = MODELS[name][0](inputs)
        path = shortest(output, inputs)[0]
        assert path is not None
        found.append((path, longest(output, inputs)))
    return found


def translated(memory: Callable[..., nn.Module]) -> Tensor:
    """Path lengths [target source] in a GRU encoder-decoder whose decoder is told of the source by `memory`."""
    source, decoder = leaves(WORDS), RecurrentDecoder(DIM, vocabulary=5, cross=memory)
    states = recurrent(gru(DIM, DIM), source)
    stacked = torch.stack(states, 1)
    state = decoder.start(Memory(stacked, Places.of(stacked, keep=None), states[-1]), rows=1)
    rows = []
    for _ in range(WORDS):
        hidden, state = decoder.step(torch.ones(1, 1, dtype=torch.long), state)
        rows.append(shortest(hidden, source))
    return torch.tensor(rows)


def draw(found: dict[str, list[tuple[int, int]]], maps: Sequence[Tensor]) -> None:
    figure, axes = panels(4, [0.9, 0.9, 1, 1])
    for which, title in enumerate(("path, first to last", "depth")):
        axes[which].set(title=title, xlabel="places n", xscale="log", yscale="log", ylim=(1.5, 3000), xlim=(2, 256))
        axes[which].set_xticks(LENGTHS[::2], [str(n) for n in LENGTHS[::2]])
        axes[which].minorticks_off()
        for name, curve in found.items():
            axes[which].plot(
                LENGTHS, [point[which] for point in curve], color=MODELS[name][1], marker="o", markersize=2.5
            )
    axes[0].set_ylabel("operations")
    for name, curve in found.items():
        word = name.replace("self-", "").replace("Transformer ", "")
        label(axes[0], word, LENGTHS[-1], curve[-1][0], MODELS[name][1])
        if name != "GRU":  # it lies under the LSTM
            label(axes[1], word.replace("LSTM", "LSTM, GRU"), LENGTHS[-1], curve[-1][1], MODELS[name][1])
    heat(figure, axes[2:], maps)
    save(figure, "paths")


def heat(figure: "Figure", axes: "list[Axes]", maps: Sequence[Tensor]) -> None:
    """From each source word to each target word."""
    for one, lengths, title in zip(axes, maps, ("no attention", "attention"), strict=True):
        one.grid(False)
        one.imshow(lengths, cmap="viridis", vmin=0, vmax=int(maps[0].max()))
        one.set(title=title, xlabel="source word", xticks=[0, WORDS - 1], yticks=[0, WORDS - 1])
        one.set_xticklabels(["1", str(WORDS)])
        one.set_yticklabels(["1", str(WORDS)])
    axes[0].set_ylabel("target word")
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.75, label="operations between")


def main() -> None:
    torch.manual_seed(0)
    found = {name: along(name) for name in MODELS}
    without, with_ = translated(AtStart), translated(lambda dim: Unprojected(dim, score=Additive))
    draw(found, (without, with_))
    rows = [
        [name, *(f"{curve[LENGTHS.index(n)][which]}" for which in (0, 1) for n in SHOWN)]
        for name, curve in found.items()
    ]
    header = ["operations", *(f"{what}, n = {n}" for what in ("path", "depth") for n in SHOWN)]
    corner = [
        [name, *(str(int(lengths[at])) for at in ((0, WORDS - 1), (0, 0), (WORDS - 1, 0))), str(int(lengths.max()))]
        for name, lengths in (("no attention", without), ("additive attention", with_))
    ]
    wheres = ["last word → first", "first → first", "first → last", "longest of all"]
    quote("paths", table(header, rows), table([f"GRU translator, {WORDS} words", *wheres], corner))


if __name__ == "__main__":
    main()
