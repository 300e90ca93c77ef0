"""Train every model of the ladder in turn, score it on the test set, and print a table.

    python recipes/ladder/run_ladder.py DIR [--runs runs/ladder] [--only 3-gru-additive ...]

DIR holds Multi30k (train, val and test_2016_flickr, .de.gz and .en.gz). After an interruption, repeat the same command:
it resumes the training and skips finished models. Each run folder receives the translations of the test set (test.txt)
and the scores (scores.json). The last column of the table is the p-value of the paired bootstrap test (Koehn 2004)
against the GRU with additive attention.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

import saccade
from saccade.api import Run
from saccade.metrics.translation import score

FOLDER = Path(__file__).parent
BASELINE = "3-gru-additive"  # of the significance tests
BOOTSTRAP_SAMPLES = 1000


@dataclass(frozen=True)
class LadderResult:
    """The results of one model of the ladder."""

    name: str
    parameters: int
    minutes: float  # of training, including validation
    tokens_per_second: float  # target tokens, without validation
    bleu: float
    interval: list[float]
    chrf: float
    perplexity: float
    outputs: list[str]


def train_and_score(recipe: Path, folder: Path, runs: Path) -> LadderResult:
    """Train a model and score it on the test set with beam search, unless both are finished already."""
    run = saccade.train(recipe, runs / recipe.stem, set={"data": {"folder": str(folder)}})
    scores_file, outputs_file = (runs / recipe.stem / name for name in ("scores.json", "test.txt"))
    if scores_file.exists():
        outputs = outputs_file.read_text("utf-8").split("\n")[:-1]
        return LadderResult(**json.loads(scores_file.read_text("utf-8")), outputs=outputs)
    pairs = run.test_pairs()
    outputs = run.translate([source for source, _ in pairs])
    scores = score(outputs, [reference for _, reference in pairs])
    cost = -sum(run.score(pairs))
    tokens = sum(len(ids) + 1 for ids in run.codecs.target.encode([reference for _, reference in pairs]))
    seconds, tokens_per_second = training_speed(run)
    result = LadderResult(
        name=recipe.stem,
        parameters=sum(p.numel() for p in run.model.parameters()),
        minutes=seconds / 60,
        tokens_per_second=tokens_per_second,
        bleu=scores.bleu,
        interval=scores.interval["bleu"],
        chrf=scores.chrf,
        perplexity=float(np.exp(cost / tokens)),
        outputs=outputs,
    )
    outputs_file.write_text("".join(f"{line}\n" for line in outputs), "utf-8")
    scores_file.write_text(json.dumps({k: v for k, v in asdict(result).items() if k != "outputs"}, indent=1), "utf-8")
    return result


def training_speed(run: Run) -> tuple[float, float]:
    """The seconds of the whole training, and the median target tokens per second."""
    lines = [json.loads(line) for line in run.folder.timing.read_text("utf-8").splitlines()]
    rates = [line["target_tokens_per_second"] for line in lines]
    return lines[-1]["seconds"], float(np.median(rates))


def p_value(baseline: LadderResult, other: LadderResult, references: list[str]) -> float:
    """The p-value of the difference in BLEU under the paired bootstrap test."""
    systems: list[tuple[str, Sequence[str]]] = [(result.name, result.outputs) for result in (baseline, other)]
    _, results = PairedTest(systems, {"bleu": BLEU()}, [references], "bs", BOOTSTRAP_SAMPLES)()
    return results["BLEU"][1].p_value  # type: ignore[union-attr]


def table(results: list[LadderResult], references: list[str]) -> list[str]:
    lines = [
        "| recipe | parameters | BLEU (95 %) | chrF | perplexity | minutes | target tokens/s | p |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    baseline = next((result for result in results if result.name == BASELINE), None)
    for result in results:
        low, high = result.interval
        p = f"{p_value(baseline, result, references):.3f}" if baseline and result is not baseline else ""
        lines.append(
            f"| {result.name} | {result.parameters / 1e6:.2f} M | {result.bleu:.1f} ({low:.1f}–{high:.1f}) "
            f"| {result.chrf:.1f} | {result.perplexity:.2f} | {result.minutes:.1f} | {result.tokens_per_second:,.0f} "
            f"| {p} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of Multi30k")
    parser.add_argument("--runs", type=Path, default=Path("runs/ladder"), help="output folder")
    recipes = {recipe.stem: recipe for recipe in sorted(FOLDER.glob("[0-9]*.toml"))}
    parser.add_argument("--only", nargs="+", choices=recipes, default=list(recipes), help="only these models")
    options = parser.parse_args()
    results = [train_and_score(recipes[name], options.folder, options.runs) for name in options.only]
    references = [reference for _, reference in saccade.load(options.runs / options.only[0]).test_pairs()]
    print("\n".join(table(sorted(results, key=lambda result: result.bleu), references)))


if __name__ == "__main__":
    main()
