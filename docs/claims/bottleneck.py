"""How well short and long sequences are copied, with attention and without.

    python docs/claims/bottleneck.py [--runs FOLDER] [NAME …]     train missing runs, measure, draw
    python docs/claims/bottleneck.py --translations SRC REF NAME=FILE NAME=FILE

With --translations nothing is trained: the picture shows the BLEU of the given outputs by the length of the source.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from common import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, copy_recipe, label, panels, save, table, update_page

import saccade
from saccade.data.sources.generated import Copy
from saccade.metrics.translation import bleu
from saccade.training.progress import Silent

SHORTEST, LONGEST, SYMBOLS = 2, 15, 20  # of the training strings
TEST_LENGTHS, TEST_ROWS = range(4, 31, 2), 100
TABLE_LENGTHS, POSITION_LENGTHS = (4, 8, 14, 20, 30), (14, 20)
UPDATES, SEEDS = 800, (1, 2)
ADDITIVE = {"kind": "unprojected", "score": "additive"}

# name: (title, cross, width, updates, seeds, color). The widths of the first three give about equal numbers of weights;
# the last two are the second with three times the updates or twice the width.
SYSTEMS: dict[str, tuple[str, Any, int, int, Sequence[int], str]] = {
    "attention": ("additive attention", ADDITIVE, 64, UPDATES, SEEDS, GREEN),
    "every": ("summary at every step", "every_step", 68, UPDATES, SEEDS, BLUE),
    "start": ("summary as initial state", "at_start", 76, UPDATES, SEEDS, RED),
    "longer": ("every step, 3 × the updates", "every_step", 68, 3 * UPDATES, SEEDS[:1], PURPLE),
    "wider": ("every step, 2 × the width", "every_step", 136, UPDATES, SEEDS[:1], ORANGE),
}


def recipe(cross: Any, dim: int, updates: int, seed: int) -> dict[str, Any]:
    text = {"symbols": SYMBOLS, "shortest": SHORTEST, "longest": LONGEST}
    return copy_recipe(text, cross, dim, seed, dev_rows=50, train={"updates": updates, "batch_tokens": 1000})


def trained_run(name: str, seed: int, runs: Path) -> saccade.Run:
    """The run of a system; a finished run is not trained again."""
    _, cross, dim, updates, _, _ = SYSTEMS[name]
    return saccade.train(recipe(cross, dim, updates, seed), runs / f"{name}-{seed}", report=Silent())


def accuracy_by_length(run: saccade.Run, lengths: Sequence[int], rows: int = TEST_ROWS) -> list[tuple[float, float]]:
    """For each length: the fraction of correct sequences, and the fraction of symbols that are correct at their
    position."""
    accuracies = []
    for length in lengths:
        texts = [pair.source for pair in Copy(rows=rows, shortest=length, longest=length, split="test").rows()]
        copies = run.translate(texts)
        sequences = sum(text == copy for text, copy in zip(texts, copies, strict=True)) / rows
        split = [(text.split(), copy.split()) for text, copy in zip(texts, copies, strict=True)]
        symbols = sum(a == b for text, copy in split for a, b in zip(text, copy, strict=False))
        accuracies.append((sequences, symbols / (rows * length)))
    return accuracies


def accuracy_by_position(run: saccade.Run, length: int, rows: int = TEST_ROWS) -> list[float]:
    """The accuracy of the symbols at each of POSITIONS; negative positions count from the end of the output."""
    texts = [pair.source.split() for pair in Copy(rows=rows, shortest=length, longest=length, split="test").rows()]
    copies = [copy.split() for copy in run.translate([" ".join(text) for text in texts])]
    pairs = list(zip(texts, copies, strict=True))
    return [sum([text[at]] == copy[at:][:1] for text, copy in pairs if len(copy) >= -at) / rows for at in POSITIONS]


POSITIONS = (0, 4, 9, -10, -5, -1)
Curves = list[list[tuple[float, float]]]  # seed, length, (correct sequences, correct symbols)


def mean(curves: Curves, column: int) -> list[float]:
    return [sum(point[column] for point in points) / len(points) for points in zip(*curves, strict=True)]


def draw(results: Mapping[str, Curves]) -> None:
    figure, all_axes = panels(2)
    for column, title in enumerate(("correct sequences", "correct symbols")):
        axes = all_axes[column]
        axes.set(title=title, xlabel="length", ylim=(-0.02, 1.05), xlim=(TEST_LENGTHS[0], TEST_LENGTHS[-1]))
        axes.axvspan(LONGEST + 0.5, TEST_LENGTHS[-1], color="#f3f3f3", zorder=0)
        label(axes, "longer than any\nin training", LONGEST + 0.5, 0.9, GRAY, right=75)
        for name, curves in results.items():
            color = SYSTEMS[name][-1]
            for curve in curves:
                axes.plot(TEST_LENGTHS, [point[column] for point in curve], color=color, linewidth=0.6, alpha=0.6)
            axes.plot(TEST_LENGTHS, mean(curves, column), color=color, marker="o", markersize=2.5)
            if position := LABEL_POSITIONS[name][column]:
                label(axes, SYSTEMS[name][0], *position, color)
    all_axes[0].set_ylabel("fraction")
    save(figure, "bottleneck")


# system: (x, y) of its label in the left and in the right panel
LABEL_POSITIONS: dict[str, tuple[tuple[float, float], tuple[float, float] | None]] = {
    "attention": ((18.5, 0.6), (19, 0.7)),
    "longer": ((20, 0.42), None),
    "wider": ((20, 0.34), None),
    "every": ((20, 0.26), None),
    "start": ((20, 0.18), None),
}


def length_table(results: Mapping[str, Curves], weights: Mapping[str, int]) -> str:
    """Correct sequences and symbols by length, means over seeds."""
    header = ["correct sequences / correct symbols", "weights", *(f"length {n}" for n in TABLE_LENGTHS)]
    rows = []
    for name, curves in results.items():
        at = [TEST_LENGTHS.index(n) for n in TABLE_LENGTHS]
        cells = [f"{mean(curves, 0)[n]:.0%} / {mean(curves, 1)[n]:.0%}" for n in at]
        rows.append([SYSTEMS[name][0], f"{weights[name]:,}", *cells])
    return table(header, rows)


def position_table(results: Mapping[str, Sequence[list[float]]]) -> str:
    """Correct symbols by position: a row for each system and length."""
    names = ["1st", "5th", "10th", "10th from the end", "5th from the end", "last"]
    rows = [
        [f"{SYSTEMS[name][0]}, length {length}", *(f"{accuracy:.0%}" for accuracy in accuracies)]
        for name, by_length in results.items()
        for length, accuracies in zip(POSITION_LENGTHS, by_length, strict=True)
    ]
    return table(["correct symbols, one seed", *names], rows)


# ── BLEU by source length, for translations with and without attention ──

BUCKETS = (1, 8, 12, 16, 20, 100)  # words of the source; bucket n has BUCKETS[n] to BUCKETS[n + 1] − 1


def bleu_by_length(
    sources: Sequence[str], references: Sequence[str], outputs: Sequence[str]
) -> list[tuple[int, float]]:
    """The number of sentences and their BLEU in each of BUCKETS."""
    rows = list(zip(sources, references, outputs, strict=True))
    scores = []
    for first, end in pairwise(BUCKETS):
        bucket = [(reference, output) for source, reference, output in rows if first <= len(source.split()) < end]
        score = (
            bleu([output for _, output in bucket], [reference for reference, _ in bucket]) if bucket else float("nan")
        )
        scores.append((len(bucket), score))
    return scores


def draw_translations(sources: Sequence[str], references: Sequence[str], systems: Mapping[str, Sequence[str]]) -> None:
    """Draw the BLEU by length of each system (name → output lines) as docs/images/claims-bottleneck-translation.png."""
    figure, (axes,) = panels(1)
    names = [f"{first}–{end - 1}" for first, end in pairwise(BUCKETS)]
    scores = {name: bleu_by_length(sources, references, outputs) for name, outputs in systems.items()}
    for (name, points), color in zip(scores.items(), (GREEN, RED, BLUE, ORANGE, PURPLE), strict=False):
        axes.plot([score for _, score in points], color=color, marker="o", markersize=3)
        last = max(number for number, (count, _) in enumerate(points) if count)
        label(axes, name, last, points[last][1], color)
    axes.set(xlabel="words of the source", ylabel="BLEU", title="BLEU by length", ylim=(0, None))
    axes.set_xticks(range(len(names)), names)
    save(figure, "bottleneck-translation")
    counts = [str(count) for count, _ in next(iter(scores.values()))]
    rows = [[name, *(f"{score:.1f}" for _, score in points)] for name, points in scores.items()]
    print(table(["BLEU, words of the source", *names], [["sentences", *counts], *rows]))


def lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").removesuffix("\n").split("\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"systems: {', '.join(SYSTEMS)} (default: all)")
    parser.add_argument("--runs", type=Path, default=Path("runs/claims/bottleneck"))
    parser.add_argument("--translations", nargs="+", metavar="FILE")
    options = parser.parse_args()
    if options.translations:
        source, reference, *systems = options.translations
        outputs = {name: lines(path) for name, _, path in (system.partition("=") for system in systems)}
        return draw_translations(lines(source), lines(reference), outputs)
    by_length, weights, by_position = {}, {}, {}
    for name in options.names or SYSTEMS:
        runs = [trained_run(name, seed, options.runs) for seed in SYSTEMS[name][4]]
        weights[name] = sum(weight.numel() for weight in runs[0].model.parameters())
        by_length[name] = [accuracy_by_length(run, TEST_LENGTHS) for run in runs]
        by_position[name] = [accuracy_by_position(runs[0], length) for length in POSITION_LENGTHS]
        print(length_table({name: by_length[name]}, weights), flush=True)
    if not options.names:
        draw(by_length)
        shown = {name: by_position[name] for name in ("attention", "every", "start")}
        update_page("bottleneck", length_table(by_length, weights), position_table(shown))
    return None


if __name__ == "__main__":
    main()
