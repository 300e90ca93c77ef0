"""Hard attention (REINFORCE), soft and sparse attention on a copying task.

python docs/claims/hard_and_soft.py [--runs FOLDER] [NAME …]     train missing runs, measure, draw
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common import BLUE, GRAY, GREEN, ORANGE, RED, copy_recipe, label, number, panels, save, table, update_page
from torch import Tensor

import saccade
from saccade.data.batches import Batch, Corpus
from saccade.data.sources.generated import Copy
from saccade.notes import capture, listen
from saccade.parts import NORMALIZERS, Hard
from saccade.tasks.losses import next_token_loss, teacher_forced_hidden
from saccade.training.progress import Silent

LONGEST, SYMBOLS, UPDATES, VALIDATE_EVERY, SEEDS = 10, 10, 2000, 100, (1, 2)
STEPS = range(VALIDATE_EVERY, UPDATES + 1, VALIDATE_EVERY)
TABLE_STEPS = (200, 500, 1000, 2000)
SAMPLES, NOISE_STEPS = 256, (100, 200, 500, 1000, 2000)
ATTENTION = "decoder.cross"

AttentionStatistics = tuple[float, float, float]  # entropy, nonzero weights, weight on the copied symbol


class NoBaseline(Hard):
    """Hard attention trained without a baseline."""

    def _update_baseline(self, cost: Tensor, count: Tensor) -> None:
        pass  # the baseline stays zero


NORMALIZERS["hard_no_baseline"] = NoBaseline

SYSTEMS: dict[str, tuple[str, Any, str]] = {  # name: (title, cross, color)
    "soft": ("soft", {"kind": "unprojected", "score": "additive", "normalizer": "softmax"}, BLUE),
    "sparse": ("sparsemax", {"kind": "unprojected", "score": "additive", "normalizer": "sparsemax"}, GREEN),
    "hard": ("hard", {"kind": "unprojected", "score": "additive", "normalizer": "hard"}, RED),
    "hard_no_baseline": (
        "hard, no baseline",
        {"kind": "unprojected", "score": "additive", "normalizer": "hard_no_baseline"},
        ORANGE,
    ),
    "none": ("no attention", "every_step", GRAY),
}


def recipe(cross: Any, seed: int) -> dict[str, Any]:
    text = {"symbols": SYMBOLS, "shortest": 2, "longest": LONGEST}
    train = {"updates": UPDATES, "batch_tokens": 500, "validate_every": VALIDATE_EVERY}
    train |= {"keep": UPDATES // VALIDATE_EVERY, "best_by": "exact_match"}
    return copy_recipe(text, cross, 32, seed, dev_rows=200, train=train)


def trained_run(name: str, seed: int, runs: Path) -> Path:
    """The folder of a run; a finished run is not trained again."""
    folder = runs / f"{name}-{seed}"
    saccade.train(recipe(SYSTEMS[name][1], seed), folder, report=Silent())
    return folder


def accuracy(folder: Path) -> list[float]:
    """The percentage of correct copies at each validation: 200 rows of 2 to 10 symbols."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [line["validation"]["exact_match"] for line in lines if "validation" in line]


def load_step(folder: Path, step: int) -> saccade.Run:
    return saccade.load(folder, f"step-{step}")


def test_batch(run: saccade.Run, rows: int) -> Batch:
    """Unseen strings of the maximum length, so that there is no padding."""
    test = Copy(rows=rows, symbols=SYMBOLS, shortest=LONGEST, longest=LONGEST, split="test")
    ids = run.codecs.source.encode([pair.source for pair in test.rows()])
    return Corpus(ids, ids).batch(list(range(rows)))


def attention_statistics(run: saccade.Run) -> AttentionStatistics:
    """The mean entropy of the attention (for hard attention, of the distribution that it samples from), the mean number
    of nonzero weights, and the mean weight on the symbol to be copied."""
    batch, model = test_batch(run, 200), run.model
    with torch.no_grad(), capture(model) as maps, listen(model, "sampled") as notes:
        teacher_forced_hidden(model, batch)
        weights = maps[ATTENTION][:, 0]
    sampled = list(notes.maps().values())
    entropy = sampled[0][..., 1] if sampled else torch.special.entr(weights).sum(-1)
    on_copied = weights.diagonal(dim1=1, dim2=2)
    return entropy.mean().item(), (weights > 0).sum(-1).double().mean().item(), on_copied.mean().item()


# ── the variance of the estimated gradient ──


@dataclass(frozen=True)
class GradientNoise:
    """For many estimates g of the same gradient: the variance E‖g − mean‖², the signal ‖mean‖² (corrected for the
    variance of the mean), and the mean. The true mean does not depend on the baseline."""

    variance: float
    signal: float
    mean: Tensor


def gradient_noise(run: saccade.Run, baseline: float | None) -> GradientNoise:
    """The noise of the gradient of the score's weights, which only REINFORCE trains. None: the learned baseline."""
    batch, model = test_batch(run, 32), run.model.train()
    normalizer = model.get_submodule(f"{ATTENTION}.normalizer")
    assert isinstance(normalizer, Hard)
    normalizer.entropy_weight, fixed = 0.0, normalizer.baseline.item() if baseline is None else baseline
    weights = list(model.get_submodule(f"{ATTENTION}.score").parameters())
    estimates = []
    for seed in range(SAMPLES):
        torch.manual_seed(seed)
        normalizer.baseline.fill_(fixed)  # `policy_loss` updates it
        loss = next_token_loss(model, batch)
        gradients = torch.autograd.grad(loss.total / loss.count, weights)
        estimates.append(torch.cat([gradient.flatten() for gradient in gradients]))
    model.eval()
    stacked = torch.stack(estimates).double()
    variance = stacked.var(0).sum().item()
    mean = stacked.mean(0)
    return GradientNoise(variance, mean.square().sum().item() - variance / SAMPLES, mean)


def noise_by_step(folder: Path) -> Iterator[tuple[int, GradientNoise, GradientNoise]]:
    """At each of NOISE_STEPS: the noise with the learned baseline and without one."""
    for step in NOISE_STEPS:
        run = load_step(folder, step)
        yield step, gradient_noise(run, None), gradient_noise(run, 0.0)


# ── pictures and tables ──


def draw(
    accuracies: Mapping[str, list[list[float]]],
    statistics: Mapping[str, list[AttentionStatistics]],
    noise: Sequence[tuple[int, GradientNoise, GradientNoise]],
) -> None:
    figure, axes = panels(3)
    axes[0].set(title="correct sequences", ylabel="%", ylim=(-2, 105))
    axes[1].set(title="entropy of the attention", ylabel="nats", ylim=(0, 2.5))
    axes[2].set(title="gradient: variance / signal", yscale="log", xscale="log")
    for panel in axes:
        panel.set_xlabel("updates")
    for name, curves in accuracies.items():
        for curve in curves:
            axes[0].plot(STEPS, curve, color=SYSTEMS[name][2], linewidth=1.0)
    for name, points in statistics.items():
        axes[1].plot(STEPS, [entropy for entropy, _, _ in points], color=SYSTEMS[name][2])
    steps = [step for step, _, _ in noise]
    with_baseline = [learned.variance / learned.signal for _, learned, _ in noise]
    without = [
        zero.variance / learned.signal for _, learned, zero in noise
    ]  # the learned baseline estimates the signal best
    axes[2].plot(steps, with_baseline, color=RED, marker="o", markersize=3)
    axes[2].plot(steps, without, color=ORANGE, marker="o", markersize=3)
    for column, name, x, y in LABEL_POSITIONS:
        label(axes[column], SYSTEMS[name][0], x, y, SYSTEMS[name][2])
    save(figure, "hard_and_soft")


LABEL_POSITIONS = (  # panel, system, x, y
    (0, "soft", 60, 84),
    (0, "sparse", 60, 104),
    (0, "hard", 950, 80),
    (0, "hard_no_baseline", 1150, 42),
    (0, "none", 1350, 57),
    (1, "soft", 1200, 1.3),
    (1, "sparse", 1200, 0.82),
    (1, "hard", 1200, 0.15),
    (1, "hard_no_baseline", 1000, 2.05),
    (2, "hard", 150, 4.5),
    (2, "hard_no_baseline", 300, 150),
)


def tables(
    accuracies: Mapping[str, list[list[float]]],
    statistics: Mapping[str, list[AttentionStatistics]],
    noise: Sequence[tuple[int, GradientNoise, GradientNoise]],
) -> list[str]:
    """The tables of the page."""
    accuracy_rows = [
        [SYSTEMS[name][0], *(" ".join(f"{curve[STEPS.index(n)]:.0f}" for curve in curves) for n in TABLE_STEPS)]
        for name, curves in accuracies.items()
    ]
    statistics_rows = [
        [SYSTEMS[name][0], *(number(value) for value in points[-1])] for name, points in statistics.items()
    ]
    cosine = torch.nn.functional.cosine_similarity
    noise_rows = [
        [
            f"{step:,}",
            number(learned.variance / learned.signal),
            number(zero.variance / learned.signal),
            number(zero.variance / learned.variance),
            number(cosine(learned.mean, zero.mean, dim=0).item()),
        ]
        for step, learned, zero in noise
    ]
    return [
        table(["correct sequences in %, two seeds", *(f"{n:,} updates" for n in TABLE_STEPS)], accuracy_rows),
        table(
            [f"after {UPDATES:,} updates", "entropy in nats", "nonzero weights", "weight on the copied symbol"],
            statistics_rows,
        ),
        table(
            [
                "updates",
                "variance / signal, with baseline",
                "without baseline",
                "ratio of variances",
                "cosine of the means",
            ],
            noise_rows,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"systems: {', '.join(SYSTEMS)} (default: all)")
    parser.add_argument("--runs", type=Path, default=Path("runs/claims/hard_and_soft"))
    options = parser.parse_args()
    folders = {name: [trained_run(name, seed, options.runs) for seed in SEEDS] for name in options.names or SYSTEMS}
    accuracies = {name: [accuracy(folder) for folder in seeds] for name, seeds in folders.items()}
    if options.names:
        print(accuracies)
        return
    with_attention = [name for name in SYSTEMS if name != "none"]
    statistics = {
        name: [attention_statistics(load_step(folders[name][0], step)) for step in STEPS] for name in with_attention
    }
    noise = list(noise_by_step(folders["hard"][0]))
    draw(accuracies, statistics, noise)
    update_page("hard_and_soft", *tables(accuracies, statistics, noise))


if __name__ == "__main__":
    main()
