"""The gradient of the last output with respect to the input d steps before: `python docs/claims/gradients.py`."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from common import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, label, number, panels, save, table, update_page
from torch import Tensor, nn

from saccade.parts import MultiHead, RecurrentNet, gru, lstm, tanh
from saccade.places import Places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIM, LENGTH, MAX_DISTANCE = 64, 300, 200  # the first 100 steps let the state move away from its initial zero
SEEDS, ROWS = range(8), 4
TABLE_DISTANCES = (1, 10, 50, 100, 200)
LAGS, TRAIN_SEEDS, UPDATES = (10, 30, 90), range(3), 200
SYMBOLS = 8  # to remember; as many others are fillers

Make = Callable[[], nn.Module]


def gaussian(gain: float) -> RecurrentNet:
    """A tanh network whose recurrent matrix has independent Gaussian entries and a spectral radius of about `gain`."""
    cell = tanh(DIM, DIM)
    nn.init.normal_(cell.net.get_parameter("weight_hh_l0"), std=gain * DIM**-0.5)
    return cell


def lstm_with_forget_bias(bias: float) -> RecurrentNet:
    """An LSTM whose forget gates start at σ(bias)."""
    cell = lstm(DIM, DIM)
    cell.net.get_parameter("bias_ih_l0").detach()[DIM : 2 * DIM] = bias
    return cell


KINDS: dict[str, tuple[Make, str]] = {
    "tanh, orthogonal": (lambda: tanh(DIM, DIM), BLUE),
    "tanh, Gaussian, gain 0.58": (lambda: gaussian(3**-0.5), GRAY),
    "tanh, Gaussian, gain 3": (lambda: gaussian(3.0), PURPLE),
    "GRU": (lambda: gru(DIM, DIM), RED),
    "LSTM, forget bias 0": (lambda: lstm_with_forget_bias(0.0), "#e0b060"),
    "LSTM, forget bias 1": (lambda: lstm(DIM, DIM), ORANGE),
    "LSTM, forget bias 5": (lambda: lstm_with_forget_bias(5.0), "#8a5a00"),
    "self-attention": (lambda: MultiHead(DIM, causal=True, heads=4), GREEN),
}


def outputs(part: nn.Module, x: Tensor) -> Tensor:
    """The outputs of a recurrent network or of self-attention at all positions."""
    places = Places.of(x, keep=None)
    if isinstance(part, RecurrentNet):
        return part.whole(x, places)[0]
    return part(x, places, part.start(None, x.shape[0]))[0]  # type: ignore[operator]


def gradient_norms(part: nn.Module, x: Tensor) -> Tensor:
    """‖∂(r · y_last) / ∂x_(last − d)‖ for d = 0 … MAX_DISTANCE [B d], with a random unit vector r."""
    x = x.double().requires_grad_()
    direction = F.normalize(torch.randn(x.shape[0], DIM, dtype=torch.double), dim=-1)
    (gradient,) = torch.autograd.grad((outputs(part.double(), x)[:, -1] * direction).sum(), x)
    return gradient.norm(dim=-1).flip(1)[:, : MAX_DISTANCE + 1]


def untrained_norms(make: Make, scale: float) -> Tensor:
    """Gradient norms of untrained networks: 10th, 50th and 90th percentile over seeds and rows [3 d]."""
    norms = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        norms.append(gradient_norms(make(), scale * torch.randn(ROWS, LENGTH, DIM)))
    return torch.cat(norms).quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.double), 0)


class Recall(nn.Module):
    """Predict at the end of a sequence which of SYMBOLS symbols was the first, with `lag` fillers in between."""

    def __init__(self, part: nn.Module, lag: int):
        super().__init__()
        self.part, self.lag = part, lag
        self.embedding, self.out = nn.Embedding(2 * SYMBOLS, DIM), nn.Linear(DIM, SYMBOLS)
        nn.init.normal_(self.embedding.weight, std=DIM**-0.5)

    def fillers(self, rows: int, length: int) -> Tensor:
        return torch.randint(SYMBOLS, 2 * SYMBOLS, (rows, length))

    def loss(self, rows: int) -> tuple[Tensor, float]:
        """The loss and the accuracy on newly sampled rows."""
        first = torch.randint(0, SYMBOLS, (rows, 1))
        hidden = outputs(self.part, self.embedding(torch.cat([first, self.fillers(rows, self.lag)], 1)))
        logits = self.out(hidden[:, -1])
        return F.cross_entropy(logits, first[:, 0]), (logits.argmax(-1) == first[:, 0]).double().mean().item()


def trained_recall(make: Make, lag: int, seed: int, updates: int = UPDATES) -> tuple[Recall, float]:
    """A network trained on `Recall`, and its accuracy on 500 new rows (chance level: 1/8)."""
    torch.manual_seed(seed)
    model = Recall(make(), lag)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(updates):
        optimizer.zero_grad()
        model.loss(32)[0].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        return model, model.loss(500)[1]


def trained_norms(make: Make) -> Tensor:
    """Median gradient norms of a network trained with the shortest lag, on its own embeddings [d]."""
    model, accuracy = trained_recall(make, LAGS[0], seed=0)
    print(f"  accuracy {accuracy:.0%} at lag {LAGS[0]}")
    embeddings = model.embedding(model.fillers(8 * ROWS, LENGTH)).detach()
    return gradient_norms(model.part, embeddings).median(0).values


def tables(unit: dict[str, Tensor], small: dict[str, Tensor], recalls: dict[str, list[list[float]]]) -> list[str]:
    """The tables of the page, for inputs of variance 1 and of variance 1 / DIM, and of the recall accuracy."""
    header = ["", *(f"d = {d}" for d in TABLE_DISTANCES)]
    norms = [
        table(
            [title, *header[1:]],
            [[name, *(number(curve[1, d].item(), 1) for d in TABLE_DISTANCES)] for name, curve in curves.items()],
        )
        for title, curves in (("inputs of variance 1", unit), ("inputs of variance 1/64", small))
    ]
    accuracies = [
        [name, *(" ".join(f"{seed:.0%}" for seed in seeds) for seeds in lags)] for name, lags in recalls.items()
    ]
    return [*norms, table(["accuracy on 500 rows, three seeds", *(f"lag {lag}" for lag in LAGS)], accuracies)]


def draw(unit: dict[str, Tensor], small: dict[str, Tensor], trained: dict[str, Tensor]) -> None:
    figure, axes = panels(3, height=3.4)
    titles = "inputs of variance 1", "inputs of variance 1/64, as embeddings", "before (dotted) and after training"
    for panel, title in zip(axes, titles, strict=True):
        panel.set(title=title, xlabel="distance d in steps", yscale="log", ylim=(1e-22, 1e6), xlim=(0, MAX_DISTANCE))
    axes[0].set_ylabel("norm of the gradient")
    for panel, curves in zip(axes, (unit, small), strict=False):
        for name, (low, median, high) in curves.items():
            panel.plot(median, color=KINDS[name][1])
            panel.fill_between(range(MAX_DISTANCE + 1), low, high, color=KINDS[name][1], alpha=0.2, linewidth=0)
    for name, curve in trained.items():
        axes[2].plot(small[name][1], color=KINDS[name][1], linestyle=":")
        axes[2].plot(curve, color=KINDS[name][1])
    add_labels(axes)
    save(figure, "gradients")


def add_labels(axes: "list[Axes]") -> None:
    left, middle, right = axes
    label(left, "tanh, gain 3", 45, 1e3, PURPLE)
    label(left, "LSTM, bias 5", 120, 2, "#8a5a00")
    label(left, "self-attention", 120, 4e-4, GREEN)
    label(left, "LSTM, bias 1", 90, 2e-7, ORANGE)
    label(left, "GRU", 92, 1e-16, RED)
    label(left, "tanh, orthogonal;\nLSTM, bias 0", 108, 1e-20, BLUE)
    label(left, "tanh,\ngain 0.58", 2, 1e-19, GRAY)
    label(middle, "tanh, gain 3", 38, 1e3, PURPLE)
    label(middle, "tanh, orthogonal", 115, 5e-8, BLUE)
    label(middle, "GRU; LSTM, bias 0", 98, 3e-13, RED)
    label(middle, "tanh, gain 0.58", 2, 1e-20, GRAY)
    label(right, "tanh, orthogonal", 110, 5, BLUE)
    label(right, "GRU", 150, 1e-2, RED)
    label(right, "GRU, untrained", 95, 3e-13, RED)
    label(right, "LSTM, bias 1", 60, 2e-6, ORANGE)


def main() -> None:
    unit = {name: untrained_norms(make, 1.0) for name, (make, _) in KINDS.items()}
    small = {name: untrained_norms(make, DIM**-0.5) for name, (make, _) in KINDS.items()}
    trained = {name: trained_norms(KINDS[name][0]) for name in ("tanh, orthogonal", "GRU", "LSTM, forget bias 1")}
    draw(unit, small, trained)
    if "--picture" in sys.argv:
        return
    recalls = {}
    for name in (name for name in KINDS if "Gaussian" not in name):
        recalls[name] = [[trained_recall(KINDS[name][0], lag, seed)[1] for seed in TRAIN_SEEDS] for lag in LAGS]
        print(name, recalls[name], flush=True)
    print({name: [number(curve[d].item(), 1) for d in TABLE_DISTANCES] for name, curve in trained.items()})
    update_page("gradients", *tables(unit, small, recalls))


if __name__ == "__main__":
    main()
