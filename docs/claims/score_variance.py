"""The effect of the width on scores, their softmax and its gradient: `python docs/claims/score_variance.py`."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from common import BLUE, GREEN, RED, label, number, panels, save, table, update_page
from torch import Tensor, nn

from saccade.parts import Additive, Dot, ScaledDot, Softmax

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTHS = tuple(2**n for n in range(2, 11))
TABLE_WIDTHS = (4, 64, 1024)
KEYS, QUERIES, SEEDS = 32, 128, range(8)

KINDS: dict[str, tuple[Callable[[int], nn.Module], str]] = {
    "dot": (Dot, RED),
    "scaled dot": (ScaledDot, BLUE),
    "additive": (lambda width: Additive(heads=1, width=width), GREEN),
}
STATISTICS = ("variance", "entropy", "jacobian", "query_mean", "query_median", "top_tenth")


def statistics(make: Callable[[int], nn.Module], width: int, seed: int) -> list[float]:
    """STATISTICS for one sample of queries, keys and weights."""
    torch.manual_seed(seed)
    score, normalizer = make(width), Softmax()
    q = torch.randn(1, 1, QUERIES, width, requires_grad=True)
    k = torch.randn(1, 1, KEYS, width)
    scores = score.join(score.query(q), score.key(k))  # type: ignore[operator]
    weights = normalizer(scores, keep=None)
    (query_gradient,) = torch.autograd.grad((weights @ torch.randn(KEYS)).sum(), q)
    norms, p = query_gradient.norm(dim=-1), weights.detach()[0, 0]
    return [
        scores.var().item(),
        torch.special.entr(p).sum(-1).mean().item(),
        jacobian(p).median().item(),
        norms.mean().item(),
        norms.median().item(),
        (norms.flatten().sort(descending=True).values[: QUERIES // 10].sum() / norms.sum()).item(),
    ]


def jacobian(p: Tensor) -> Tensor:
    """‖∂ softmax / ∂ scores‖ = ‖diag(p) − p pᵀ‖ for each row of weights."""
    return (torch.diag_embed(p) - p[..., None] * p[..., None, :]).norm(dim=(-1, -2))


def measure() -> dict[str, Tensor]:
    """Kind of score → statistics [width, statistic, seed]."""
    return {
        name: torch.tensor([[statistics(make, width, seed) for seed in SEEDS] for width in WIDTHS]).transpose(1, 2)
        for name, (make, _) in KINDS.items()
    }


def draw(results: dict[str, Tensor]) -> None:
    figure, axes = panels(4)
    titles = "variance of the scores", "entropy (nats)", "Jacobian of the softmax", "gradient of a query"
    for panel, title in zip(axes, titles, strict=True):
        panel.set(title=title, xlabel="width K", xscale="log", xlim=(WIDTHS[0], WIDTHS[-1]))
        panel.set_xticks([4, 16, 64, 256, 1024], ["4", "16", "64", "256", "1024"])
        panel.minorticks_off()
    axes[0].set(yscale="log")
    axes[2].set(ylim=(0, 0.4))
    axes[3].set(yscale="log", ylim=(1e-4, 10))
    axes[1].axhline(math.log(KEYS), color="#999999", linewidth=0.8, linestyle="--")
    label(axes[1], f"uniform over {KEYS} keys", 5, math.log(KEYS), "#777777", right=0, up=6)
    for name, curves in results.items():
        for panel, statistic in zip(axes, ("variance", "entropy", "jacobian", "query_median"), strict=True):
            low, median, high = curves[:, STATISTICS.index(statistic)].quantile(torch.tensor([0.1, 0.5, 0.9]), -1)
            panel.plot(WIDTHS, median, color=KINDS[name][1], marker="o", markersize=2.5)
            panel.fill_between(WIDTHS, low, high, color=KINDS[name][1], alpha=0.2, linewidth=0)
        mean = curves[:, STATISTICS.index("query_mean")].quantile(0.5, -1)
        axes[3].plot(WIDTHS, mean, color=KINDS[name][1], linestyle=":")
    add_labels(axes)
    save(figure, "score_variance")


def add_labels(axes: "list[Axes]") -> None:
    label(axes[0], "dot", 40, 100, RED, right=-20)
    label(axes[0], "scaled dot", 60, 1.6, BLUE)
    label(axes[0], "additive", 60, 0.6, GREEN)
    label(axes[1], "dot", 60, 0.8, RED)
    label(axes[1], "scaled dot", 60, 2.85, BLUE)
    label(axes[1], "additive", 100, 3.33, GREEN)
    label(axes[2], "dot", 15, 0.36, RED)
    label(axes[2], "scaled dot", 80, 0.26, BLUE)
    label(axes[2], "additive", 80, 0.19, GREEN)
    label(axes[3], "dot, mean", 50, 3, RED)
    label(axes[3], "dot, median", 50, 3e-3, RED)
    label(axes[3], "scaled dot", 4, 0.31, BLUE)
    label(axes[3], "additive", 5, 0.05, GREEN, right=40)


def main() -> None:
    results = measure()
    draw(results)
    names = ["variance", "entropy", "Jacobian, median", "∂/∂q, mean", "∂/∂q, median", "share of the top tenth"]
    rows = [
        [
            f"{name}, K = {width}",
            *(number(curves[WIDTHS.index(width), at].quantile(0.5).item()) for at in range(len(STATISTICS))),
        ]
        for name, curves in results.items()
        for width in TABLE_WIDTHS
    ]
    update_page("score_variance", table(["score", *names], rows))


if __name__ == "__main__":
    main()
