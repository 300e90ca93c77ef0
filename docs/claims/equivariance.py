"""What becomes of an output when the input is shuffled: `python docs/claims/equivariance.py`."""

from collections.abc import Callable
from dataclasses import replace

import torch
from common import BLUE, GREEN, RED, label, number, panels, quote, save, table
from torch import Tensor, nn

from saccade.models.blocks import Standard
from saccade.parts import Dot, MultiHead, Sinusoidal, Unprojected, gru
from saccade.places import Memory, PerSentence, Places

DIM, LENGTH, LAYERS, SEEDS = 32, 12, 8, range(8)

Model = Callable[[Tensor], Tensor]


def attention(causal: bool = False, positions: bool = False) -> Model:
    """Self-attention, with what may be added to it."""
    mixer, position = MultiHead(DIM, causal, heads=4), Sinusoidal(DIM)

    def run(x: Tensor) -> Tensor:
        places = Places.of(x, keep=None)
        told = position.embed(x, places) if positions else x
        return mixer.double()(told, places, mixer.start(None, x.shape[0]))[0]

    return run


def bare() -> Model:
    """Self-attention without any weights: softmax(x xᵀ) x."""
    mixer = Unprojected(DIM, cross=False, score=Dot)
    return lambda x: mixer(x, Places.of(x, keep=None), mixer.start(None, x.shape[0]))[0]


def recurrent(bidirectional: bool = False) -> Model:
    cell = gru(DIM, DIM, bidirectional=bidirectional).double()
    return lambda x: cell.whole(x, Places.of(x, keep=None))[0]


MODELS: dict[str, Callable[[], Model]] = {
    "attention": attention,
    "attention, no weights": bare,
    "+ positions": lambda: attention(positions=True),
    "+ causal mask": lambda: attention(causal=True),
    "GRU": recurrent,
    "GRU, both ways": lambda: recurrent(bidirectional=True),
}


def difference(make: Callable[[], Model], seed: int) -> Tensor:
    """|f(shuffled x) − shuffled f(x)| over the mean size of f(x) [T D]: zeros where f is equivariant."""
    torch.manual_seed(seed)
    x, order = torch.randn(1, LENGTH, DIM, dtype=torch.double), torch.randperm(LENGTH)
    while (order == torch.arange(LENGTH)).any():  # nothing stays where it was
        order = torch.randperm(LENGTH)
    model = make()
    with torch.no_grad():
        y, shuffled = model(x), model(x[:, order])
    return (shuffled - y[:, order]).abs()[0] / y.abs().mean()


def with_values(mixer: MultiHead, x: Tensor, memory: Memory, values: Tensor) -> Tensor:
    """What attention gives, its last bias apart, if its keys are those of a memory and its values others [1 H S K]."""
    state = mixer.start(memory, 1)
    assert isinstance(state, PerSentence)
    return mixer(x, Places.of(x, keep=None), PerSentence(replace(state.value, value=values)))[0] - mixer.out.bias


def bend(f: Model, a: Tensor, b: Tensor) -> float:
    """How far f(2a − 3b) is from 2 f(a) − 3 f(b), relative to it: zero for a linear f."""
    with torch.no_grad():
        straight = 2 * f(a) - 3 * f(b)
        return ((f(2 * a - 3 * b) - straight).norm() / straight.norm()).item()


def bends(seed: int) -> tuple[float, float]:
    """How far attention is from linear: in its values; and in all that it reads."""
    torch.manual_seed(seed)
    mixer = MultiHead(DIM, heads=4).double()
    nn.init.normal_(mixer.out.bias)  # it begins at zero, which would prove less
    x, z, a, b = torch.randn(4, 1, LENGTH, DIM, dtype=torch.double)
    memory = Memory(z, Places.of(z, keep=None), z.mean(1))
    heads = [each.unflatten(-1, (4, -1)).transpose(1, 2) for each in (a, b)]

    def itself(x: Tensor) -> Tensor:
        return mixer(x, Places.of(x, keep=None), mixer.start(None, 1))[0] - mixer.out.bias

    return bend(lambda values: with_values(mixer, x, memory, values), *heads), bend(itself, a, b)


def spread(make: Callable[[], nn.Module], adds: bool, seed: int) -> list[float]:
    """How much the places differ after each layer: ‖x − its mean over places‖ / ‖x‖."""
    torch.manual_seed(seed)
    x = torch.randn(1, LENGTH, DIM, dtype=torch.double)
    found = []
    with torch.no_grad():
        for _ in range(LAYERS + 1):
            found.append(((x - x.mean(1, keepdim=True)).norm() / x.norm()).item())
            layer = make().double()
            y, _ = layer(x, Places.of(x, keep=None), layer.start(None, 1))  # type: ignore[operator]
            x = x + y if adds else y
    return found


STACKS: dict[str, tuple[Callable[[], nn.Module], bool, str]] = {
    "attention alone": (lambda: MultiHead(DIM, heads=4), False, RED),
    "x + attention": (lambda: MultiHead(DIM, heads=4), True, BLUE),
    "Transformer blocks": (lambda: Standard(DIM, self_=lambda dim: MultiHead(dim, heads=4)), False, GREEN),
}


def draw(maps: dict[str, Tensor], spreads: dict[str, Tensor]) -> None:
    figure, axes = panels(5, [1, 1, 1, 1, 1.5])
    shown = ("attention", "+ positions", "+ causal mask", "GRU")
    image = None
    for one, name in zip(axes, shown, strict=False):
        one.grid(False)
        image = one.imshow(maps[name], cmap="magma", vmin=0, vmax=2, aspect="auto")
        one.set(title=name, xlabel="number of the vector", xticks=[0, DIM - 1], yticks=[0, LENGTH - 1])
        one.set_xticklabels(["1", str(DIM)])
        one.set_yticklabels(["1", str(LENGTH)])
    axes[0].set_ylabel("place")
    assert image is not None
    figure.colorbar(image, ax=axes[3], label="difference", shrink=0.8)
    axes[4].set(
        title="how much places differ", xlabel="layers", yscale="log", ylim=(1e-16, 30), xticks=range(0, LAYERS + 1, 2)
    )
    for name, curves in spreads.items():
        axes[4].plot(curves.median(0).values, color=STACKS[name][2])
    label(axes[4], "x + attention", 2.5, 4e-2, BLUE)
    label(axes[4], "Transformer blocks", 1, 8, GREEN)
    label(axes[4], "attention\nalone", 3.3, 1e-9, RED)
    save(figure, "equivariance")


def main() -> None:
    found = {name: torch.stack([difference(make, seed) for seed in SEEDS]) for name, make in MODELS.items()}
    spreads = {
        name: torch.tensor([spread(make, adds, seed) for seed in SEEDS]) for name, (make, adds, _) in STACKS.items()
    }
    draw({name: each[1] for name, each in found.items()}, spreads)
    rows = [[name, number(each.mean().item()), number(each.max().item())] for name, each in found.items()]
    values, reads = torch.tensor([bends(seed) for seed in SEEDS]).max(0).values.tolist()
    linear = [["its values, weights as they are", number(values)], ["all it reads", number(reads)]]
    quote(
        "equivariance",
        table(["shuffle, then model − model, then shuffle", "mean", "largest"], rows),
        table(["f(2a − 3b) − 2 f(a) + 3 f(b), a and b are", "relative, largest"], linear),
        table(
            ["how much places differ, after layers", *map(str, (0, 1, 2, 4, LAYERS))],
            [
                [name, *(number(curves.median(0).values[n].item()) for n in (0, 1, 2, 4, LAYERS))]
                for name, curves in spreads.items()
            ],
        ),
    )


if __name__ == "__main__":
    main()
