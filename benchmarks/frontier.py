"""Quality against speed: BLEU and sentences per second of a model, of a faster model, and of other systems.

    python benchmarks/frontier.py RUN FAST TEXT REFERENCE [--sentences 300] [--rounds 5] [--picture FILE] [--json]

RUN and FAST are trained on tokenized text, like the published results for Multi30k; BLEU is computed on these tokens,
on all of TEXT. Speeds are measured as in translate.py: the systems run in turns, with batch 1 on `--sentences`
sentences one at a time, and with batch 64 on three times as many. The main result is the ratio of FAST in Saccade to
RUN in CTranslate2's own API, both with int8 and beam 1.
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

from translate import Condition, CTranslate2, Transformers, Translate, engine_translate, run_in_turns, settings

import saccade
from saccade.formats import ctranslate2, marian
from saccade.lines import file_lines

BATCHES = (1, 64)
FAST, BASELINE = "the fast recipe, CTranslate2 int8, beam 1", "CTranslate2's API, int8, beam 1"


@dataclass(frozen=True)
class System:
    """A system with its beam size; `translator(condition)` is its translation function for a batch size."""

    name: str
    beam: int
    translator: Callable[[Condition], Translate]

    def at(self, batch: int, sentences: list[str]) -> Translate:
        return self.translator(Condition(batch, self.beam, sentences))


def saccade_system(name: str, folder: Path, engine: str, quantization: str, beam: int) -> System:
    run = saccade.load(folder, engine=engine, quantization=quantization)
    return System(name, beam, lambda condition: engine_translate(run.engine, settings(run, condition), condition.batch))


def systems(folder: Path, fast: Path, scratch: Path) -> list[System]:
    run = saccade.load(folder)
    marian.write(run, scratch / "hf")
    ctranslate2.write(run, scratch / "int8", "int8")
    generate = Transformers(scratch / "hf")
    int8_api = CTranslate2(scratch / "int8", run, "int8")
    return [
        saccade_system(FAST, fast, "ctranslate2", "int8", 1),
        System(BASELINE, 1, int8_api.translator),
        saccade_system("CTranslate2 int8, beam 1", folder, "ctranslate2", "int8", 1),
        saccade_system("CTranslate2 float32, beam 1", folder, "ctranslate2", "float32", 1),
        saccade_system("CTranslate2 float32, beam 5", folder, "ctranslate2", "float32", 5),
        saccade_system("torch, beam 1", folder, "torch", "float32", 1),
        saccade_system("torch, beam 5", folder, "torch", "float32", 5),
        System("transformers' generate, beam 1", 1, generate.translator),
        System("transformers' generate, beam 5", 5, generate.translator),
    ]


def bleu(outputs: list[str], references: list[str]) -> float:
    import sacrebleu

    return sacrebleu.corpus_bleu(outputs, [references], tokenize="none", force=True).score


def plot(results: dict[str, Any], picture: Path) -> None:
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    figure, axes = pyplot.subplots(1, len(BATCHES), figsize=(11, 5), sharey=True, layout="constrained")
    for at, batch in zip(axes, BATCHES, strict=True):
        for number, (name, row) in enumerate(results["systems"].items(), 1):
            point = row["sentences_per_second"][str(batch)], row["bleu"]
            # gray: other libraries, the only names with an apostrophe
            color = "C3" if name == FAST else "C7" if "'" in name else "C0"
            at.scatter(*point, color=color, zorder=3, label=f"{number}  {name}")
            at.annotate(
                str(number), point, xytext=(0, 6 if number % 2 else -14), textcoords="offset points", ha="center"
            )
        at.set_xscale("log")
        at.set_xlabel(f"sentences per second, batch {batch}")
        at.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    axes[0].set_ylabel("BLEU, test_2016_flickr")
    figure.savefig(picture, dpi=130)


def summary(results: dict[str, Any]) -> str:
    lines = [f"{'':44} BLEU   batch 1   batch 64   sentences/s"]
    for name, row in results["systems"].items():
        speeds = row["sentences_per_second"]
        lines.append(f"{name:44} {row['bleu']:5.2f} {speeds['1']:9.1f} {speeds['64']:10.1f}")
    for batch, ratio in results["fast_to_ctranslate2_int8"].items():
        lines.append(f"batch {batch}: the fast recipe is {ratio:.2f} × CTranslate2 int8 with the other model")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("run", type=Path, help="a trained Transformer run")
    parser.add_argument("fast", type=Path, help="the faster run that is compared with RUN")
    parser.add_argument("text", help="source sentences, one per line")
    parser.add_argument("reference", help="reference translations, one per line")
    parser.add_argument("--sentences", type=int, default=300, help="at batch 1; three times as many for batch 64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--picture", type=Path, help="write a plot to this file, such as frontier.png")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    text, references = [*file_lines(arguments.text)], [*file_lines(arguments.reference)]
    with TemporaryDirectory() as scratch:
        compared = systems(arguments.run, arguments.fast, Path(scratch))
        scores = {system.name: bleu(system.at(64, text)(text), references) for system in compared}
        speeds = {}
        for batch in BATCHES:
            sentences = [*islice(text, arguments.sentences * (1 if batch == 1 else 3))]
            translates = {system.name: system.at(batch, sentences) for system in compared}
            speeds[str(batch)], _ = run_in_turns(translates, sentences, arguments.rounds)
    results = {
        "systems": {
            system.name: {
                "bleu": scores[system.name],
                "sentences_per_second": {batch: statistics.median(s[system.name]) for batch, s in speeds.items()},
            }
            for system in compared
        },
        "fast_to_ctranslate2_int8": {
            batch: statistics.median(a / b for a, b in zip(s[FAST], s[BASELINE], strict=True))
            for batch, s in speeds.items()
        },
    }
    print(summary(results), file=sys.stderr if arguments.json else sys.stdout)
    if arguments.json:
        print(json.dumps(results, indent=2))
    if arguments.picture:
        plot(results, arguments.picture)


if __name__ == "__main__":
    main()
