"""How well short and long sequences are copied, with attention and without.

    python docs/claims/bottleneck.py [--runs FOLDER] [NAME …]     trains what is not trained yet, measures, draws
    python docs/claims/bottleneck.py --translations SRC REF NAME=FILE NAME=FILE

With --translations nothing is trained: the picture is BLEU by the length of the source, of some systems' outputs.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from common import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, copying, label, panels, quote, save, table

import saccade
from saccade.data.generated import Copy
from saccade.metrics.translation import bleu
from saccade.training.progress import Silent

SHORTEST, LONGEST, SYMBOLS = 2, 15, 20  # of the training text
LENGTHS, ROWS = range(4, 31, 2), 100
SHOWN, INSIDE = (4, 8, 14, 20, 30), (14, 20)
UPDATES, SEEDS = 800, (1, 2)
ADDITIVE = {"kind": "unprojected", "score": "additive"}

# Widths that give about as many weights. The last two are the same net, three times as long or twice as wide.
SYSTEMS: dict[str, tuple[str, Any, int, int, Sequence[int], str]] = {
    "attention": ("additive attention", ADDITIVE, 64, UPDATES, SEEDS, GREEN),
    "every": ("summary at every step", "every_step", 68, UPDATES, SEEDS, BLUE),
    "start": ("summary at the start", "at_start", 76, UPDATES, SEEDS, RED),
    "longer": ("every step, 3 × the updates", "every_step", 68, 3 * UPDATES, SEEDS[:1], PURPLE),
    "wider": ("every step, 2 × the width", "every_step", 136, UPDATES, SEEDS[:1], ORANGE),
}


def recipe(memory: Any, dim: int, updates: int, seed: int) -> dict[str, Any]:
    text = {"symbols": SYMBOLS, "shortest": SHORTEST, "longest": LONGEST}
    return copying(text, memory, dim, seed, dev_rows=50, train={"updates": updates, "batch_tokens": 1000})


def trained(name: str, seed: int, runs: Path) -> saccade.Run:
    """Trained now, or before: a run that is finished is only opened."""
    _, memory, dim, updates, _, _ = SYSTEMS[name]
    return saccade.train(recipe(memory, dim, updates, seed), runs / f"{name}-{seed}", report=Silent())


def by_length(run: saccade.Run, lengths: Sequence[int], rows: int = ROWS) -> list[tuple[float, float]]:
    """For each length: the share of whole copies that are right, and of symbols that stand where they should."""
    found = []
    for length in lengths:
        texts = [pair.source for pair in Copy(rows=rows, shortest=length, longest=length, split="test").rows()]
        written = run.translate(texts)
        whole = sum(text == copy for text, copy in zip(texts, written, strict=True)) / rows
        words = [(text.split(), copy.split()) for text, copy in zip(texts, written, strict=True)]
        right = sum(a == b for text, copy in words for a, b in zip(text, copy, strict=False))
        found.append((whole, right / (rows * length)))
    return found


def by_place(run: saccade.Run, length: int, rows: int = ROWS) -> list[float]:
    """How often the first, fifth and tenth symbol are right, and the tenth, fifth and first counted from the end."""
    texts = [pair.source.split() for pair in Copy(rows=rows, shortest=length, longest=length, split="test").rows()]
    written = [copy.split() for copy in run.translate([" ".join(text) for text in texts])]
    both = list(zip(texts, written, strict=True))
    return [sum([text[at]] == copy[at:][:1] for text, copy in both if len(copy) >= -at) / rows for at in ENDS]


ENDS = (0, 4, 9, -10, -5, -1)
Curves = list[list[tuple[float, float]]]  # a seed, a length, (whole copies, symbols)


def mean(curves: Curves, which: int) -> list[float]:
    return [sum(point[which] for point in points) / len(points) for points in zip(*curves, strict=True)]


def draw(found: Mapping[str, Curves]) -> None:
    figure, axes = panels(2)
    for which, title in enumerate(("whole copies that are right", "symbols in their places")):
        one = axes[which]
        one.set(title=title, xlabel="length", ylim=(-0.02, 1.05), xlim=(LENGTHS[0], LENGTHS[-1]))
        one.axvspan(LONGEST + 0.5, LENGTHS[-1], color="#f3f3f3", zorder=0)
        label(one, "longer than any\nin training", LONGEST + 0.5, 0.9, GREY, right=75)
        for name, curves in found.items():
            colour = SYSTEMS[name][-1]
            for curve in curves:
                one.plot(LENGTHS, [point[which] for point in curve], color=colour, linewidth=0.6, alpha=0.6)
            one.plot(LENGTHS, mean(curves, which), color=colour, marker="o", markersize=2.5)
            if place := PLACES[name][which]:
                label(one, SYSTEMS[name][0], *place, colour)
    axes[0].set_ylabel("share")
    save(figure, "bottleneck")


PLACES: dict[str, tuple[tuple[float, float], tuple[float, float] | None]] = {
    "attention": ((18.5, 0.6), (19, 0.7)),
    "longer": ((20, 0.42), None),
    "wider": ((20, 0.34), None),
    "every": ((20, 0.26), None),
    "start": ((20, 0.18), None),
}


def figures(found: Mapping[str, Curves], weights: Mapping[str, int]) -> str:
    """Whole copies and symbols by length, means over seeds."""
    header = ["whole copies / symbols right", "weights", *(f"length {n}" for n in SHOWN)]
    rows = []
    for name, curves in found.items():
        at = [LENGTHS.index(n) for n in SHOWN]
        cells = [f"{mean(curves, 0)[n]:.0%} / {mean(curves, 1)[n]:.0%}" for n in at]
        rows.append([SYSTEMS[name][0], f"{weights[name]:,}", *cells])
    return table(header, rows)


def places(found: Mapping[str, Sequence[list[float]]]) -> str:
    """Which symbols of a string are right: a row for each system and length."""
    names = ["1st", "5th", "10th", "10th from the end", "5th from the end", "last"]
    rows = [
        [f"{SYSTEMS[name][0]}, length {length}", *(f"{share:.0%}" for share in shares)]
        for name, each in found.items()
        for length, shares in zip(INSIDE, each, strict=True)
    ]
    return table(["symbols right, one seed", *names], rows)


# ── BLEU by length: for a translator with attention and one without ──

BUCKETS = (1, 8, 12, 16, 20, 100)  # words of a source: few are longer than the last


def bleu_by_length(
    sources: Sequence[str], references: Sequence[str], outputs: Sequence[str]
) -> list[tuple[int, float]]:
    """How many sentences have a source of BUCKETS[n] to BUCKETS[n + 1] − 1 words, and their BLEU."""
    rows = list(zip(sources, references, outputs, strict=True))
    found = []
    for first, end in pairwise(BUCKETS):
        here = [(reference, output) for source, reference, output in rows if first <= len(source.split()) < end]
        score = bleu([output for _, output in here], [reference for reference, _ in here]) if here else float("nan")
        found.append((len(here), score))
    return found


def draw_translations(sources: Sequence[str], references: Sequence[str], systems: Mapping[str, Sequence[str]]) -> None:
    """BLEU by length of some systems (name → output lines): docs/images/claims-bottleneck-translation.png."""
    figure, (axes,) = panels(1)
    names = [f"{first}–{end - 1}" for first, end in pairwise(BUCKETS)]
    found = {name: bleu_by_length(sources, references, outputs) for name, outputs in systems.items()}
    for (name, points), colour in zip(found.items(), (GREEN, RED, BLUE, ORANGE, PURPLE), strict=False):
        axes.plot([score for _, score in points], color=colour, marker="o", markersize=3)
        last = max(number for number, (count, _) in enumerate(points) if count)
        label(axes, name, last, points[last][1], colour)
    axes.set(xlabel="words of the source", ylabel="BLEU", title="BLEU by length", ylim=(0, None))
    axes.set_xticks(range(len(names)), names)
    save(figure, "bottleneck-translation")
    counts = [str(count) for count, _ in next(iter(found.values()))]
    rows = [[name, *(f"{score:.1f}" for _, score in points)] for name, points in found.items()]
    print(table(["BLEU, words of the source", *names], [["sentences", *counts], *rows]))


def lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").removesuffix("\n").split("\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"systems to train, of {', '.join(SYSTEMS)}; all if none")
    parser.add_argument("--runs", type=Path, default=Path("runs/claims/bottleneck"))
    parser.add_argument("--translations", nargs="+", metavar="FILE")
    given = parser.parse_args()
    if given.translations:
        source, reference, *systems = given.translations
        outputs = {name: lines(path) for name, _, path in (each.partition("=") for each in systems)}
        return draw_translations(lines(source), lines(reference), outputs)
    found, weights, inside = {}, {}, {}
    for name in given.names or SYSTEMS:
        runs = [trained(name, seed, given.runs) for seed in SYSTEMS[name][4]]
        weights[name] = sum(weight.numel() for weight in runs[0].model.parameters())
        found[name] = [by_length(run, LENGTHS) for run in runs]
        inside[name] = [by_place(runs[0], length) for length in INSIDE]
        print(figures({name: found[name]}, weights), flush=True)
    if not given.names:
        draw(found)
        shown = {name: inside[name] for name in ("attention", "every", "start")}
        quote("bottleneck", figures(found, weights), places(shown))
    return None


if __name__ == "__main__":
    main()
