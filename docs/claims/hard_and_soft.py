"""Hard attention (REINFORCE) against soft and sparse, on copying: `python docs/claims/hard_and_soft.py`.

python docs/claims/hard_and_soft.py [--runs FOLDER] [NAME …]     trains what is not trained yet, measures, draws
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common import BLUE, GREEN, GREY, ORANGE, RED, copying, label, number, panels, quote, save, table
from torch import Tensor

import saccade
from saccade.data.batches import Batch, Corpus
from saccade.data.generated import Copy
from saccade.notes import capture, listen
from saccade.parts import NORMALIZERS, Hard
from saccade.tasks.losses import next_token, teacher_forced_hidden
from saccade.training.progress import Silent

LONGEST, SYMBOLS, UPDATES, EVERY, SEEDS = 10, 10, 2000, 100, (1, 2)
STEPS = range(EVERY, UPDATES + 1, EVERY)
SHOWN = (200, 500, 1000, 2000)
DRAWS, NOISE_STEPS = 256, (100, 200, 500, 1000, 2000)
BARE = "decoder.cross"


class NoBaseline(Hard):
    """Hard attention whose wagers are settled by their whole cost."""

    def _remember(self, cost: Tensor, count: Tensor) -> None:
        pass  # the baseline stays at zero


NORMALIZERS["hard_no_baseline"] = NoBaseline

SYSTEMS: dict[str, tuple[str, Any, str]] = {
    "soft": ("soft", {"kind": "unprojected", "score": "additive", "normalizer": "softmax"}, BLUE),
    "sparse": ("sparsemax", {"kind": "unprojected", "score": "additive", "normalizer": "sparsemax"}, GREEN),
    "hard": ("hard", {"kind": "unprojected", "score": "additive", "normalizer": "hard"}, RED),
    "plain": (
        "hard, no baseline",
        {"kind": "unprojected", "score": "additive", "normalizer": "hard_no_baseline"},
        ORANGE,
    ),
    "none": ("no attention", "every_step", GREY),
}


def recipe(memory: Any, seed: int) -> dict[str, Any]:
    text = {"symbols": SYMBOLS, "shortest": 2, "longest": LONGEST}
    train = {"updates": UPDATES, "batch_tokens": 500, "validate_every": EVERY}
    train |= {"keep": UPDATES // EVERY, "best_by": "exact_match"}
    return copying(text, memory, 32, seed, dev_rows=200, train=train)


def trained(name: str, seed: int, runs: Path) -> Path:
    """The folder of a run, trained now or before."""
    folder = runs / f"{name}-{seed}"
    saccade.train(recipe(SYSTEMS[name][1], seed), folder, report=Silent())
    return folder


def accuracy(folder: Path) -> list[float]:
    """Per cent of whole copies that were right at each validation: 200 rows of 2 to 10 symbols."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [line["validation"]["exact_match"] for line in lines if "validation" in line]


def at(folder: Path, step: int) -> saccade.Run:
    return saccade.load(folder, f"step-{step}")


def rows(run: saccade.Run, count: int) -> Batch:
    """Unseen copies of the longest length, so that nothing is padded."""
    test = Copy(rows=count, symbols=SYMBOLS, shortest=LONGEST, longest=LONGEST, split="test")
    ids = run.codecs.source.encode([pair.source for pair in test.rows()])
    return Corpus(ids, ids).batch(list(range(count)))


def look(run: saccade.Run) -> tuple[float, float, float]:
    """Of the attention in use: its entropy (of a hard one: of what it draws from), how many places it gives any weight,
    and how much weight lies on the right place, the symbol that is to be written."""
    batch, model = rows(run, 200), run.model
    with torch.no_grad(), capture(model) as maps, listen(model, "sampled") as wagers:
        teacher_forced_hidden(model, batch)
        weights = maps[BARE][:, 0]
    drawn = list(wagers.maps().values())
    entropy = drawn[0][..., 1] if drawn else torch.special.entr(weights).sum(-1)
    right = weights.diagonal(dim1=1, dim2=2)
    return entropy.mean().item(), (weights > 0).sum(-1).double().mean().item(), right.mean().item()


# ── how noisy the estimated gradient is ──


@dataclass(frozen=True)
class Noise:
    """Of many draws for the same batch: E‖g − mean‖², ‖mean‖² (what noise adds to it taken off), and the mean. With the
    baseline and without the true mean is the same, so the signal is taken from the draws that tell it best: with."""

    variance: float
    signal: float
    mean: Tensor


def noise(run: saccade.Run, baseline: float | None) -> Noise:
    """Of the gradient of the score's weights, which learn from wagers only; `baseline` None: as it was learned."""
    batch, model = rows(run, 32), run.model.train()
    normalizer = model.get_submodule(f"{BARE}.normalizer")
    assert isinstance(normalizer, Hard)
    normalizer.entropy, held = 0.0, normalizer.baseline.item() if baseline is None else baseline
    weights = list(model.get_submodule(f"{BARE}.score").parameters())
    draws = []
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        normalizer.baseline.fill_(held)  # settling moves it
        loss = next_token(model, batch, smoothing=0.0)
        gradients = torch.autograd.grad(loss.total / loss.count, weights)
        draws.append(torch.cat([gradient.flatten() for gradient in gradients]))
    model.eval()
    each = torch.stack(draws).double()
    variance = each.var(0).sum().item()
    return Noise(variance, each.mean(0).square().sum().item() - variance / DRAWS, each.mean(0))


def noises(folder: Path) -> Iterator[tuple[int, Noise, Noise]]:
    """At some steps: with the baseline and without."""
    for step in NOISE_STEPS:
        run = at(folder, step)
        yield step, noise(run, None), noise(run, 0.0)


# ── pictures and tables ──

Looks = list[tuple[float, float, float]]


def draw(right: Mapping[str, list[list[float]]], looks: Mapping[str, Looks], noisy: Sequence[Any]) -> None:
    figure, axes = panels(3)
    axes[0].set(title="whole copies that are right", ylabel="per cent", ylim=(-2, 105))
    axes[1].set(title="entropy of the attention", ylabel="nats", ylim=(0, 2.5))
    axes[2].set(title="gradient: variance / signal", yscale="log", xscale="log")
    for one in axes:
        one.set_xlabel("updates")
    for name, curves in right.items():
        for curve in curves:
            axes[0].plot(STEPS, curve, color=SYSTEMS[name][2], linewidth=1.0)
    for name, points in looks.items():
        axes[1].plot(STEPS, [entropy for entropy, _, _ in points], color=SYSTEMS[name][2])
    steps = [step for step, _, _ in noisy]
    axes[2].plot(steps, [with_.variance / with_.signal for _, with_, _ in noisy], color=RED, marker="o", markersize=3)
    axes[2].plot(
        steps, [out.variance / with_.signal for _, with_, out in noisy], color=ORANGE, marker="o", markersize=3
    )
    for which, name, x, y in PLACES:
        label(axes[which], SYSTEMS[name][0], x, y, SYSTEMS[name][2])
    save(figure, "hard_and_soft")


PLACES = (
    (0, "soft", 60, 84),
    (0, "sparse", 60, 104),
    (0, "hard", 950, 80),
    (0, "plain", 1150, 42),
    (0, "none", 1350, 57),
    (1, "soft", 1200, 1.3),
    (1, "sparse", 1200, 0.82),
    (1, "hard", 1200, 0.15),
    (1, "plain", 1000, 2.05),
    (2, "hard", 150, 4.5),
    (2, "plain", 300, 150),
)


def figures(right: Mapping[str, list[list[float]]], looks: Mapping[str, Looks], noisy: Sequence[Any]) -> list[str]:
    """The tables of the page."""
    learned = [
        [SYSTEMS[name][0], *(" ".join(f"{curve[STEPS.index(n)]:.0f}" for curve in curves) for n in SHOWN)]
        for name, curves in right.items()
    ]
    looking = [[SYSTEMS[name][0], *(number(fact) for fact in points[-1])] for name, points in looks.items()]
    cosine = torch.nn.functional.cosine_similarity
    estimates = [
        [
            f"{step:,}",
            number(with_.variance / with_.signal),
            number(without.variance / with_.signal),
            number(without.variance / with_.variance),
            number(cosine(with_.mean, without.mean, dim=0).item()),
        ]
        for step, with_, without in noisy
    ]
    return [
        table(["right, per cent, two seeds", *(f"{n:,} updates" for n in SHOWN)], learned),
        table([f"after {UPDATES:,} updates", "entropy, nats", "places with any weight", "on the right place"], looking),
        table(
            ["updates", "variance / signal, baseline", "no baseline", "ratio of variances", "cosine of the means"],
            estimates,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"systems to train, of {', '.join(SYSTEMS)}; all if none")
    parser.add_argument("--runs", type=Path, default=Path("runs/claims/hard_and_soft"))
    given = parser.parse_args()
    folders = {name: [trained(name, seed, given.runs) for seed in SEEDS] for name in given.names or SYSTEMS}
    right = {name: [accuracy(folder) for folder in each] for name, each in folders.items()}
    if given.names:
        print(right)
        return
    attentive = [name for name in SYSTEMS if name != "none"]
    looks = {name: [look(at(folders[name][0], step)) for step in STEPS] for name in attentive}
    noisy = list(noises(folders["hard"][0]))
    draw(right, looks, noisy)
    quote("hard_and_soft", *figures(right, looks, noisy))


if __name__ == "__main__":
    main()
