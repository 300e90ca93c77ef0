"""Trains every rung of the ladder in turn, scores it, and prints a table.

    python recipes/ladder/climb.py DIR [--runs runs/ladder] [--only 3-gru-additive ...]

DIR holds Multi30k (train, val and test_2016_flickr, .de.gz and .en.gz). Killed, it goes on where it stopped. Between
neighbours on the ladder stands the share of bootstrap samples of the test text in which the upper one is not better
(Koehn 2004, paired: both are scored on the same samples).
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sacrebleu.metrics.bleu import BLEU

import saccade
from saccade.api import Run
from saccade.measures.translation import score

FOLDER = Path(__file__).parent
SAMPLES = 1000


@dataclass(frozen=True)
class Rung:
    """What is told of a rung."""

    name: str
    parameters: int
    minutes: float  # of training, validation included
    tokens_per_second: float  # of the target, validation aside
    bleu: float
    interval: list[float]
    chrf: float
    perplexity: float
    outputs: list[str]


def climb(recipe: Path, folder: Path, runs: Path) -> Rung:
    """Train a rung, or take what was trained, and score it on the test text by beam search."""
    run = saccade.train(recipe, runs / recipe.stem, set={"data": {"folder": str(folder)}})
    stored = runs / recipe.stem / "scores.json"
    if stored.exists():
        return Rung(**json.loads(stored.read_text("utf-8")))
    pairs = run.test_pairs()
    outputs = run.translate([source for source, _ in pairs])
    scores = score(outputs, [reference for _, reference in pairs])
    cost = -sum(run.score(pairs))
    tokens = sum(len(ids) + 1 for ids in run.codecs.target.encode([reference for _, reference in pairs]))
    seconds, rate = measured(run)
    rung = Rung(
        name=recipe.stem,
        parameters=sum(p.numel() for p in run.model.parameters()),
        minutes=seconds / 60,
        tokens_per_second=rate,
        bleu=scores.bleu,
        interval=scores.interval["bleu"],
        chrf=scores.chrf,
        perplexity=float(np.exp(cost / tokens)),
        outputs=outputs,
    )
    stored.write_text(json.dumps(asdict(rung), ensure_ascii=False, indent=1), "utf-8")
    return rung


def measured(run: Run) -> tuple[float, float]:
    """Seconds of the whole training, and the median rate of its intervals."""
    lines = [json.loads(line) for line in run.folder.timing.read_text("utf-8").splitlines()]
    rates = [line["target_tokens_per_second"] for line in lines]
    return lines[-1]["seconds"], float(np.median(rates))


def not_better(upper: Rung, lower: Rung, references: list[str]) -> float:
    """The share of resampled test texts on which the upper rung does not beat the lower one."""
    metric = BLEU()
    statistics = [np.array(metric._extract_corpus_statistics(rung.outputs, [references])) for rung in (upper, lower)]
    dice = np.random.default_rng(1)
    rows = dice.integers(len(references), size=(SAMPLES, len(references)))
    scores = [[metric._compute_score_from_stats(each[row].sum(0)).score for row in rows] for each in statistics]
    return float(np.mean(np.array(scores[0]) <= np.array(scores[1])))


def table(rungs: list[Rung], references: list[str]) -> list[str]:
    lines = [
        "| rung | parameters | BLEU (95 %) | chrF | perplexity | minutes | target tokens/s | p against the last |",
        "|---|---|---|---|---|---|---|---|",
    ]
    before: Rung | None = None
    for rung in rungs:
        low, high = rung.interval
        p = f"{not_better(rung, before, references):.3f}" if before else ""
        lines.append(
            f"| {rung.name} | {rung.parameters / 1e6:.2f} M | {rung.bleu:.1f} ({low:.1f}–{high:.1f}) | {rung.chrf:.1f} "
            f"| {rung.perplexity:.2f} | {rung.minutes:.1f} | {rung.tokens_per_second:,.0f} | {p} |"
        )
        before = rung
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where Multi30k is")
    parser.add_argument("--runs", type=Path, default=Path("runs/ladder"))
    parser.add_argument("--only", nargs="*", default=[], help="some rungs, by name")
    given = parser.parse_args()
    recipes = [r for r in sorted(FOLDER.glob("[0-9]*.toml")) if not given.only or r.stem in given.only]
    rungs = [climb(recipe, given.folder, given.runs) for recipe in recipes]
    references = [reference for _, reference in saccade.load(given.runs / recipes[0].stem).test_pairs()]
    print("\n".join(table(sorted(rungs, key=lambda rung: rung.bleu), references)))


if __name__ == "__main__":
    main()
