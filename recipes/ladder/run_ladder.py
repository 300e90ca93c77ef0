"""Trains every rung of the ladder in turn, scores it, and prints a table.

    python recipes/ladder/climb.py DIR [--runs runs/ladder] [--only 3-gru-additive ...]

DIR holds Multi30k (train, val and test_2016_flickr, .de.gz and .en.gz). Killed, it goes on where it stopped. The last
column is p of the paired bootstrap test (Koehn 2004) against the GRU with additive attention. Each rung's translations
of the test text are in its folder (test.txt), its figures in scores.json.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

import saccade
from saccade.api import Run
from saccade.metrics.translation import score

FOLDER = Path(__file__).parent
MIDDLE = "3-gru-additive"  # all others are tested against it
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
    figures, translations = (runs / recipe.stem / name for name in ("scores.json", "test.txt"))
    if figures.exists():
        outputs = translations.read_text("utf-8").split("\n")[:-1]
        return Rung(**json.loads(figures.read_text("utf-8")), outputs=outputs)
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
    translations.write_text("".join(f"{line}\n" for line in outputs), "utf-8")
    figures.write_text(json.dumps({k: v for k, v in asdict(rung).items() if k != "outputs"}, indent=1), "utf-8")
    return rung


def measured(run: Run) -> tuple[float, float]:
    """Seconds of the whole training, and the median rate of its intervals."""
    lines = [json.loads(line) for line in run.folder.timing.read_text("utf-8").splitlines()]
    rates = [line["target_tokens_per_second"] for line in lines]
    return lines[-1]["seconds"], float(np.median(rates))


def chance(one: Rung, other: Rung, references: list[str]) -> float:
    """p of the paired bootstrap: how often such a difference comes by the choice of test sentences alone."""
    systems = [(rung.name, rung.outputs) for rung in (one, other)]
    _, found = PairedTest(systems, {"bleu": BLEU()}, [references], "bs", SAMPLES)()
    return found["BLEU"][1].p_value  # type: ignore[union-attr]


def table(rungs: list[Rung], references: list[str]) -> list[str]:
    lines = [
        "| rung | parameters | BLEU (95 %) | chrF | perplexity | minutes | target tokens/s | p |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    middle = next((rung for rung in rungs if rung.name == MIDDLE), None)
    for rung in rungs:
        low, high = rung.interval
        p = f"{chance(middle, rung, references):.3f}" if middle and rung is not middle else ""
        lines.append(
            f"| {rung.name} | {rung.parameters / 1e6:.2f} M | {rung.bleu:.1f} ({low:.1f}–{high:.1f}) | {rung.chrf:.1f} "
            f"| {rung.perplexity:.2f} | {rung.minutes:.1f} | {rung.tokens_per_second:,.0f} | {p} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where Multi30k is")
    parser.add_argument("--runs", type=Path, default=Path("runs/ladder"))
    recipes = {recipe.stem: recipe for recipe in sorted(FOLDER.glob("[0-9]*.toml"))}
    parser.add_argument("--only", nargs="+", choices=recipes, default=list(recipes), help="some rungs, by name")
    given = parser.parse_args()
    rungs = [climb(recipes[name], given.folder, given.runs) for name in given.only]
    references = [reference for _, reference in saccade.load(given.runs / given.only[0]).test_pairs()]
    print("\n".join(table(sorted(rungs, key=lambda rung: rung.bleu), references)))


if __name__ == "__main__":
    main()
