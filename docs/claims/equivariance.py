"""How an output changes when the input is shuffled: `python docs/claims/equivariance.py`."""

from collections.abc import Callable
from dataclasses import replace

import torch
from common import BLUE, GREEN, RED, label, number, panels, save, table, update_page
from torch import Tensor, nn

from saccade.models.blocks import Standard
from saccade.parts import Dot, MultiHead, Sinusoidal, Unprojected, gru
from saccade.places import Memory, PerSentence, Places

DIM, LENGTH, LAYERS, SEEDS = 32, 12, 8, range(8)

Model = Callable[[Tensor], Tensor]


def attention(causal: bool = False, positions: bool = False) -> Model:
    """Self-attention, optionally with a causal mask or position encodings."""
    mixer, position = MultiHead(DIM, causal, heads=4), Sinusoidal(DIM)

    def run(x: Tensor) -> Tensor:
        places = Places.of(x, keep=None)
        inputs = position.embed(x, places) if positions else x
        return mixer.double()(inputs, places, mixer.start(None, x.shape[0]))[0]

    return run


def unprojected_attention() -> Model:
    """Self-attention without parameters: softmax(x xᵀ) x."""
    mixer = Unprojected(DIM, cross=False, score=Dot)
    return lambda x: mixer(x, Places.of(x, keep=None), mixer.start(None, x.shape[0]))[0]


def recurrent(bidirectional: bool = False) -> Model:
    cell = gru(DIM, DIM, bidirectional=bidirectional).double()
    return lambda x: cell.whole(x, Places.of(x, keep=None))[0]


MODELS: dict[str, Callable[[], Model]] = {
    "attention": attention,
    "attention without parameters": unprojected_attention,
    "+ positions": lambda: attention(positions=True),
    "+ causal mask": lambda: attention(causal=True),
    "GRU": recurrent,
    "bidirectional GRU": lambda: recurrent(bidirectional=True),
}


def difference(make: Callable[[], Model], seed: int) -> Tensor:
    """|f(shuffled x) − shuffled f(x)| / mean |f(x)| [T D]: zero for an equivariant f."""
    torch.manual_seed(seed)
    x, order = torch.randn(1, LENGTH, DIM, dtype=torch.double), torch.randperm(LENGTH)
    while (order == torch.arange(LENGTH)).any():  # no position may stay the same
        order = torch.randperm(LENGTH)
    model = make()
    with torch.no_grad():
        y, shuffled = model(x), model(x[:, order])
    return (shuffled - y[:, order]).abs()[0] / y.abs().mean()


def with_values(mixer: MultiHead, x: Tensor, memory: Memory, values: Tensor) -> Tensor:
    """The output of attention, without its last bias, with the keys of a memory and the given values [1 H S K]."""
    state = mixer.start(memory, 1)
    assert isinstance(state, PerSentence)
    return mixer(x, Places.of(x, keep=None), PerSentence(replace(state.value, value=values)))[0] - mixer.out.bias


def nonlinearity(f: Model, a: Tensor, b: Tensor) -> float:
    """‖f(2a − 3b) − (2 f(a) − 3 f(b))‖ / ‖2 f(a) − 3 f(b)‖: zero for a linear f."""
    with torch.no_grad():
        linear = 2 * f(a) - 3 * f(b)
        return ((f(2 * a - 3 * b) - linear).norm() / linear.norm()).item()


def nonlinearities(seed: int) -> tuple[float, float]:
    """The nonlinearity of attention in its values alone, and in its whole input."""
    torch.manual_seed(seed)
    mixer = MultiHead(DIM, heads=4).double()
    nn.init.normal_(mixer.out.bias)  # its initial value 0 would make a weaker test
    x, z, a, b = torch.randn(4, 1, LENGTH, DIM, dtype=torch.double)
    memory = Memory(z, Places.of(z, keep=None), z.mean(1))
    heads = [values.unflatten(-1, (4, -1)).transpose(1, 2) for values in (a, b)]

    def self_attention(x: Tensor) -> Tensor:
        return mixer(x, Places.of(x, keep=None), mixer.start(None, 1))[0] - mixer.out.bias

    in_values = nonlinearity(lambda values: with_values(mixer, x, memory, values), *heads)
    return in_values, nonlinearity(self_attention, a, b)


def position_spread(make: Callable[[], nn.Module], residual: bool, seed: int) -> list[float]:
    """How much the positions differ after each layer: ‖x − mean over positions‖ / ‖x‖."""
    torch.manual_seed(seed)
    x = torch.randn(1, LENGTH, DIM, dtype=torch.double)
    spreads = []
    with torch.no_grad():
        for _ in range(LAYERS + 1):
            spreads.append(((x - x.mean(1, keepdim=True)).norm() / x.norm()).item())
            layer = make().double()
            y, _ = layer(x, Places.of(x, keep=None), layer.start(None, 1))  # type: ignore[operator]
            x = x + y if residual else y
    return spreads


STACKS: dict[str, tuple[Callable[[], nn.Module], bool, str]] = {
    "attention only": (lambda: MultiHead(DIM, heads=4), False, RED),
    "x + attention": (lambda: MultiHead(DIM, heads=4), True, BLUE),
    "Transformer blocks": (lambda: Standard(DIM, self_=lambda dim: MultiHead(dim, heads=4)), False, GREEN),
}


def draw(maps: dict[str, Tensor], spreads: dict[str, Tensor]) -> None:
    figure, axes = panels(5, [1, 1, 1, 1, 1.5])
    names = ("attention", "+ positions", "+ causal mask", "GRU")
    image = None
    for panel, name in zip(axes, names, strict=False):
        panel.grid(False)
        image = panel.imshow(maps[name], cmap="magma", vmin=0, vmax=2, aspect="auto")
        panel.set(title=name, xlabel="component", xticks=[0, DIM - 1], yticks=[0, LENGTH - 1])
        panel.set_xticklabels(["1", str(DIM)])
        panel.set_yticklabels(["1", str(LENGTH)])
    axes[0].set_ylabel("position")
    assert image is not None
    figure.colorbar(image, ax=axes[3], label="difference", shrink=0.8)
    axes[4].set(
        title="‖x − mean‖ / ‖x‖",
        xlabel="layers",
        yscale="log",
        ylim=(1e-16, 30),
        xticks=range(0, LAYERS + 1, 2),
    )
    for name, curves in spreads.items():
        axes[4].plot(curves.median(0).values, color=STACKS[name][2])
    label(axes[4], "x + attention", 2.5, 4e-2, BLUE)
    label(axes[4], "Transformer blocks", 1, 8, GREEN)
    label(axes[4], "attention\nonly", 3.3, 1e-9, RED)
    save(figure, "equivariance")


def main() -> None:
    differences = {name: torch.stack([difference(make, seed) for seed in SEEDS]) for name, make in MODELS.items()}
    spreads = {
        name: torch.tensor([position_spread(make, residual, seed) for seed in SEEDS])
        for name, (make, residual, _) in STACKS.items()
    }
    draw({name: seeds[1] for name, seeds in differences.items()}, spreads)
    rows = [[name, number(seeds.mean().item()), number(seeds.max().item())] for name, seeds in differences.items()]
    in_values, in_input = torch.tensor([nonlinearities(seed) for seed in SEEDS]).max(0).values.tolist()
    linearity = [["the values, with fixed weights", number(in_values)], ["the whole input", number(in_input)]]
    update_page(
        "equivariance",
        table(["f(shuffled x) − shuffled f(x)", "mean", "largest"], rows),
        table(["f(2a − 3b) − 2 f(a) + 3 f(b), where a and b are", "largest relative difference"], linearity),
        table(
            ["difference between positions, after layers", *map(str, (0, 1, 2, 4, LAYERS))],
            [
                [name, *(number(curves.median(0).values[n].item()) for n in (0, 1, 2, 4, LAYERS))]
                for name, curves in spreads.items()
            ],
        ),
    )


if __name__ == "__main__":
    main()
