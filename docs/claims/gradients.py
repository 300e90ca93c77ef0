"""How much of the last output's gradient reaches an input d steps before: `python docs/claims/gradients.py`."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from common import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, label, number, panels, quote, save, table
from torch import Tensor, nn

from saccade.parts import MultiHead, RecurrentNet, gru, lstm, tanh
from saccade.places import Places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIM, LENGTH, FARTHEST = 64, 300, 200  # the first hundred steps are left to the state, which begins at zero
SEEDS, ROWS = range(8), 4
SHOWN = (1, 10, 50, 100, 200)
LAGS, LEARN_SEEDS, UPDATES = (10, 30, 90), range(3), 200
SYMBOLS = 8  # to remember; as many others stand between

Make = Callable[[], nn.Module]


def gaussian(gain: float) -> RecurrentNet:
    """A tanh net whose recurrent matrix has independent entries and the spectral radius `gain`, about."""
    cell = tanh(DIM, DIM)
    nn.init.normal_(cell.net.get_parameter("weight_hh_l0"), std=gain * DIM**-0.5)
    return cell


def forgetting(bias: float) -> RecurrentNet:
    """An LSTM whose forget gates begin at σ(bias)."""
    cell = lstm(DIM, DIM)
    cell.net.get_parameter("bias_ih_l0").detach()[DIM : 2 * DIM] = bias
    return cell


KINDS: dict[str, tuple[Make, str]] = {
    "tanh, rotations": (lambda: tanh(DIM, DIM), BLUE),
    "tanh, Gaussian, gain 0.58": (lambda: gaussian(3**-0.5), GREY),
    "tanh, Gaussian, gain 3": (lambda: gaussian(3.0), PURPLE),
    "GRU": (lambda: gru(DIM, DIM), RED),
    "LSTM, forget bias 0": (lambda: forgetting(0.0), "#e0b060"),
    "LSTM, forget bias 1": (lambda: lstm(DIM, DIM), ORANGE),
    "LSTM, forget bias 5": (lambda: forgetting(5.0), "#8a5a00"),
    "self-attention": (lambda: MultiHead(DIM, causal=True, heads=4), GREEN),
}


def read(part: nn.Module, x: Tensor) -> Tensor:
    """What a recurrent net or an attention makes of a sequence."""
    places = Places.of(x, keep=None)
    if isinstance(part, RecurrentNet):
        return part.whole(x, places)[0]
    return part(x, places, part.start(None, x.shape[0]))[0]  # type: ignore[operator]


def reach(part: nn.Module, x: Tensor) -> Tensor:
    """‖∂(r · y_last) / ∂x_(last − d)‖ for d = 0 … FARTHEST [B d], with a random direction r of length one."""
    x = x.double().requires_grad_()
    direction = F.normalize(torch.randn(x.shape[0], DIM, dtype=torch.double), dim=-1)
    (gradient,) = torch.autograd.grad((read(part.double(), x)[:, -1] * direction).sum(), x)
    return gradient.norm(dim=-1).flip(1)[:, : FARTHEST + 1]


def at_first(make: Make, strength: float) -> Tensor:
    """The reach of fresh nets: 10th percentile, median and 90th, over seeds and rows [3 d]."""
    found = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        found.append(reach(make(), strength * torch.randn(ROWS, LENGTH, DIM)))
    return torch.cat(found).quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.double), 0)


class Recall(nn.Module):
    """Says at the end which of SYMBOLS symbols stood at the start; `lag` others stand between."""

    def __init__(self, part: nn.Module, lag: int):
        super().__init__()
        self.part, self.lag = part, lag
        self.embedding, self.out = nn.Embedding(2 * SYMBOLS, DIM), nn.Linear(DIM, SYMBOLS)
        nn.init.normal_(self.embedding.weight, std=DIM**-0.5)

    def between(self, rows: int, length: int) -> Tensor:
        return torch.randint(SYMBOLS, 2 * SYMBOLS, (rows, length))

    def cost(self, rows: int) -> tuple[Tensor, float]:
        """The loss of some drawn rows, and how many were right."""
        first = torch.randint(0, SYMBOLS, (rows, 1))
        states = read(self.part, self.embedding(torch.cat([first, self.between(rows, self.lag)], 1)))
        logits = self.out(states[:, -1])
        return F.cross_entropy(logits, first[:, 0]), (logits.argmax(-1) == first[:, 0]).double().mean().item()


def learned(make: Make, lag: int, seed: int, updates: int = UPDATES) -> tuple[Recall, float]:
    """A net that was taught to recall, and how often it is right on 500 new rows (by chance: 1 in 8)."""
    torch.manual_seed(seed)
    model = Recall(make(), lag)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(updates):
        optimizer.zero_grad()
        model.cost(32)[0].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        return model, model.cost(500)[1]


def after_learning(make: Make) -> Tensor:
    """The median reach of a net that has learned the shortest lag, on what it reads [d]."""
    model, right = learned(make, LAGS[0], seed=0)
    print(f"  right {right:.0%} at lag {LAGS[0]}")
    text = model.embedding(model.between(8 * ROWS, LENGTH)).detach()
    return reach(model.part, text).median(0).values


def figures(loud: dict[str, Tensor], quiet: dict[str, Tensor], recalled: dict[str, list[list[float]]]) -> list[str]:
    """The tables of the page."""
    header = ["", *(f"d = {d}" for d in SHOWN)]
    tables = [
        table(
            [title, *header[1:]],
            [[name, *(number(curve[1, d].item(), 1) for d in SHOWN)] for name, curve in found.items()],
        )
        for title, found in (("inputs of variance 1", loud), ("inputs of variance 1/64", quiet))
    ]
    right = [[name, *(" ".join(f"{each:.0%}" for each in seeds) for seeds in rows)] for name, rows in recalled.items()]
    return [*tables, table(["right, of 500; three seeds", *(f"lag {lag}" for lag in LAGS)], right)]


def draw(loud: dict[str, Tensor], quiet: dict[str, Tensor], after: dict[str, Tensor]) -> None:
    figure, axes = panels(3, height=3.4)
    beside = "inputs of variance 1", "inputs of variance 1/64, as embeddings", "before (dots) and after learning"
    for one, title in zip(axes, beside, strict=True):
        one.set(title=title, xlabel="distance d in steps", yscale="log", ylim=(1e-22, 1e6), xlim=(0, FARTHEST))
    axes[0].set_ylabel("norm of the gradient")
    for one, found in zip(axes, (loud, quiet), strict=False):
        for name, (low, middle, high) in found.items():
            one.plot(middle, color=KINDS[name][1])
            one.fill_between(range(FARTHEST + 1), low, high, color=KINDS[name][1], alpha=0.2, linewidth=0)
    for name, curve in after.items():
        axes[2].plot(quiet[name][1], color=KINDS[name][1], linestyle=":")
        axes[2].plot(curve, color=KINDS[name][1])
    mark(axes)
    save(figure, "gradients")


def mark(axes: "list[Axes]") -> None:
    """Names beside the lines."""
    left, middle, right = axes
    label(left, "tanh, gain 3", 45, 1e3, PURPLE)
    label(left, "LSTM, bias 5", 120, 2, "#8a5a00")
    label(left, "self-attention", 120, 4e-4, GREEN)
    label(left, "LSTM, bias 1", 90, 2e-7, ORANGE)
    label(left, "GRU", 92, 1e-16, RED)
    label(left, "tanh, rotations;\nLSTM, bias 0", 108, 1e-20, BLUE)
    label(left, "tanh,\ngain 0.58", 2, 1e-19, GREY)
    label(middle, "tanh, gain 3", 38, 1e3, PURPLE)
    label(middle, "tanh, rotations", 115, 5e-8, BLUE)
    label(middle, "GRU; LSTM, bias 0", 98, 3e-13, RED)
    label(middle, "tanh, gain 0.58", 2, 1e-20, GREY)
    label(right, "tanh, rotations", 110, 5, BLUE)
    label(right, "GRU", 150, 1e-2, RED)
    label(right, "GRU before", 95, 3e-13, RED)
    label(right, "LSTM, bias 1", 60, 2e-6, ORANGE)


def main() -> None:
    loud = {name: at_first(make, 1.0) for name, (make, _) in KINDS.items()}
    quiet = {name: at_first(make, DIM**-0.5) for name, (make, _) in KINDS.items()}
    after = {name: after_learning(KINDS[name][0]) for name in ("tanh, rotations", "GRU", "LSTM, forget bias 1")}
    draw(loud, quiet, after)
    if "--picture" in sys.argv:
        return
    recalled = {}
    for name in (name for name in KINDS if "Gaussian" not in name):
        recalled[name] = [[learned(KINDS[name][0], lag, seed)[1] for seed in LEARN_SEEDS] for lag in LAGS]
        print(name, recalled[name], flush=True)
    print({name: [number(curve[d].item(), 1) for d in SHOWN] for name, curve in after.items()})
    quote("gradients", *figures(loud, quiet, recalled))


if __name__ == "__main__":
    main()
