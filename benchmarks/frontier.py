"""Quality against speed: BLEU and sentences a second of a model, of one made to be fast, and of the peers.

    python benchmarks/frontier.py RUN FAST TEXT REFERENCE [--sentences 300] [--rounds 5] [--picture FILE] [--json]

RUN and FAST are trained on text that is tokenised already, as the published figures for Multi30k are; BLEU is that of
the words as they stand there, on all of TEXT. Speeds are measured as in translate.py: systems take turns; batch 1 with
`--sentences` of them one after the other, batch 64 with three times as many. The ratio that counts is FAST on Saccade
to RUN on CTranslate2's own API, both with int8 and beam 1.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from translate import Cell, CTranslate2, Transformers, Translate, of_engine, settings, take_turns

import saccade
from saccade.formats import ctranslate2, marian
from saccade.lines import file_lines

BATCHES = (1, 64)
FAST, PEER = "the fast recipe, CTranslate2 int8, beam 1", "CTranslate2's API, int8, beam 1"


@dataclass(frozen=True)
class System:
    """One way to translate; `on(cell)` is that way for a size of batch."""

    name: str
    beam: int
    on: Callable[[Cell], Translate]

    def at(self, batch: int, sentences: list[str]) -> Translate:
        return self.on(Cell(batch, self.beam, sentences))


def ours(name: str, folder: Path, engine: str, quantization: str, beam: int) -> System:
    run = saccade.load(folder, engine=engine, quantization=quantization)
    return System(name, beam, lambda cell: of_engine(run.engine, settings(run, cell), cell.batch))


def systems(folder: Path, fast: Path, scratch: Path) -> list[System]:
    run = saccade.load(folder)
    marian.write(run, scratch / "hf")
    ctranslate2.write(run, scratch / "int8", "int8")
    generate = Transformers(scratch / "hf")
    small = CTranslate2(scratch / "int8", run, "int8")
    return [
        ours(FAST, fast, "ctranslate2", "int8", 1),
        System(PEER, 1, small.on),
        ours("CTranslate2 int8, beam 1", folder, "ctranslate2", "int8", 1),
        ours("CTranslate2 float32, beam 1", folder, "ctranslate2", "float32", 1),
        ours("CTranslate2 float32, beam 5", folder, "ctranslate2", "float32", 5),
        ours("torch, beam 1", folder, "torch", "float32", 1),
        ours("torch, beam 5", folder, "torch", "float32", 5),
        System("transformers' generate, beam 1", 1, generate.on),
        System("transformers' generate, beam 5", 5, generate.on),
    ]


def bleu(outputs: list[str], references: list[str]) -> float:
    import sacrebleu

    return sacrebleu.corpus_bleu(outputs, [references], tokenize="none", force=True).score


def draw(found: dict[str, Any], picture: Path) -> None:
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    figure, axes = pyplot.subplots(1, len(BATCHES), figsize=(11, 5), sharey=True, layout="constrained")
    for at, batch in zip(axes, BATCHES, strict=True):
        for number, (name, row) in enumerate(found["systems"].items(), 1):
            place = row["sentences_per_second"][str(batch)], row["bleu"]
            color = "C3" if name == FAST else "C7" if "'" in name else "C0"
            at.scatter(*place, color=color, zorder=3, label=f"{number}  {name}")
            at.annotate(
                str(number), place, xytext=(0, 6 if number % 2 else -14), textcoords="offset points", ha="center"
            )
        at.set_xscale("log")
        at.set_xlabel(f"sentences a second, batch {batch}")
        at.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    axes[0].set_ylabel("BLEU, test_2016_flickr")
    figure.savefig(picture, dpi=130)


def told(found: dict[str, Any]) -> str:
    lines = [f"{'':44} BLEU   batch 1   batch 64   sentences/s"]
    for name, row in found["systems"].items():
        speeds = row["sentences_per_second"]
        lines.append(f"{name:44} {row['bleu']:5.2f} {speeds['1']:9.1f} {speeds['64']:10.1f}")
    for batch, ratio in found["fast_to_ctranslate2_int8"].items():
        lines.append(f"batch {batch}: the fast recipe is {ratio:.2f} × CTranslate2 int8 on the other")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("fast", type=Path)
    parser.add_argument("text")
    parser.add_argument("reference")
    parser.add_argument("--sentences", type=int, default=300, help="at batch 1; three times as many in batches")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--picture", type=Path, help="a file to draw to, such as frontier.png")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    text, references = [*file_lines(given.text)], [*file_lines(given.reference)]
    with TemporaryDirectory() as scratch:
        each = systems(given.run, given.fast, Path(scratch))
        scores = {system.name: bleu(system.at(64, text)(text), references) for system in each}
        speeds = {}
        for batch in BATCHES:
            sentences = [*islice(text, given.sentences * (1 if batch == 1 else 3))]
            works = {system.name: system.at(batch, sentences) for system in each}
            speeds[str(batch)], _ = take_turns(works, sentences, given.rounds)
    found = {
        "systems": {
            system.name: {
                "bleu": scores[system.name],
                "sentences_per_second": {batch: statistics.median(s[system.name]) for batch, s in speeds.items()},
            }
            for system in each
        },
        "fast_to_ctranslate2_int8": {
            batch: statistics.median(a / b for a, b in zip(s[FAST], s[PEER], strict=True))
            for batch, s in speeds.items()
        },
    }
    print(told(found), file=sys.stderr if given.json else sys.stdout)
    if given.json:
        print(json.dumps(found, indent=2))
    if given.picture:
        draw(found, given.picture)


if __name__ == "__main__":
    main()
