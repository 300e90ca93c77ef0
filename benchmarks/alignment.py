"""Compare Saccade's statistical aligner with eflomal (and fast_align, if it is on the PATH) on the same pairs.

    python benchmarks/alignment.py DIR [--json]

DIR contains tatoeba/fra-eng.zip and align/gold. There are two tasks: English-French, trained on Tatoeba and the text of
the gold pairs, and Romanian-English, trained on the text of 248 gold pairs only. All systems get the same lowercased
words, and none sees a gold link. However, Saccade's few constants were chosen with these error rates in view, while the
other systems run with their defaults. `forward` links each target word to at most one source word, `backward` each
source word to at most one target word. The seconds are for both directions. eflomal is a sampler: its error rates vary
by about half a point from run to run; Saccade and fast_align are deterministic.

    pip install eflomal==2.0.0        # needed only for this benchmark
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from saccade.aligners import statistical
from saccade.aligners.symmetrize import SYMMETRIZE
from saccade.data.links import GradedLinks, Links, parse_all, transposed
from saccade.metrics.alignment import score_alignments

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes" / "alignment"))
import prepare  # pyright: ignore[reportMissingImports]

Words = list[list[str]]
Pair = tuple[list[str], list[str]]
Directions = tuple[list[Links], list[Links]]  # forward and backward links, both as (source word, target word)
Aligner = Callable[[Words, Words], Directions]

# ── data, tokenized as in the recipe ──────────────────────────────────────────────────────────────


def tatoeba(folder: Path) -> list[Pair]:
    return [_split(pair) for pair in prepare.tatoeba(folder / "tatoeba" / "fra-eng.zip")["train"]]


def gold_pairs(folder: Path, name: str) -> tuple[list[Pair], list[GradedLinks]]:
    gold = (folder / "align" / "gold" / f"{name}.gold").read_text("utf-8").rstrip("\n").split("\n")
    pairs = prepare.gold(folder / "align" / "gold" / f"{name}.src-tgt")
    return [_split(pair) for pair in pairs], parse_all(gold, f"{name}.gold")


def _split(pair: tuple[str, str]) -> Pair:
    return pair[0].split(), pair[1].split()


# ── the systems ───────────────────────────────────────────────────────────────────────────────────


def saccade(sources: Words, targets: Words) -> Directions:
    return statistical.align_one_way(sources, targets), [*map(transposed, statistical.align_one_way(targets, sources))]


def saccade_plain(sources: Words, targets: Words) -> Directions:
    forward = statistical.align_one_way(sources, targets, fertility=False)
    return forward, [*map(transposed, statistical.align_one_way(targets, sources, fertility=False))]


def eflomal(sources: Words, targets: Words) -> Directions:
    from eflomal import Aligner  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder:
        names = [str(Path(folder, name)) for name in ("forward", "backward")]
        Aligner().align([*map(" ".join, sources)], [*map(" ".join, targets)], *names)
        forward, backward = (_read(Path(name).read_text("utf-8")) for name in names)
    return forward, backward


def fast_align(sources: Words, targets: Words) -> Directions:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.writelines(f"{' '.join(s)} ||| {' '.join(t)}\n" for s, t in zip(sources, targets, strict=True))
        file.flush()
        command = ["fast_align", "-d", "-o", "-v", "-i", file.name]
        forward, backward = (
            _read(subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout)
            for more in ([], ["-r"])
        )
    return forward, backward


def _read(text: str) -> list[Links]:
    return [gold.possible for gold in parse_all(text.rstrip("\n").split("\n"), "aligner output", base=0)]


def systems() -> dict[str, Aligner]:
    """The installed systems. A message on stderr names a missing one."""
    installed: dict[str, Aligner] = {"saccade": saccade, "saccade, no fertility": saccade_plain}
    try:
        import eflomal as _eflomal  # pyright: ignore[reportMissingImports]  # noqa: F401

        installed["eflomal"] = eflomal
    except ImportError:
        print("eflomal is not installed and is skipped; install it with: pip install eflomal==2.0.0", file=sys.stderr)
    if shutil.which("fast_align"):
        installed["fast_align"] = fast_align
    return installed


# ── the comparison ────────────────────────────────────────────────────────────────────────────────


def compare(pairs: Sequence[Pair], gold: Sequence[GradedLinks]) -> dict[str, dict[str, Any]]:
    """For each system: the seconds, and the scores on the gold pairs (the last ones) by direction or symmetrization."""
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    results: dict[str, dict[str, Any]] = {}
    for name, system in systems().items():
        began = time.perf_counter()
        forward, backward = (links[-len(gold) :] for links in system(sources, targets))
        seconds = time.perf_counter() - began
        alignments = {"forward": forward, "backward": backward}
        for rule, symmetrize in SYMMETRIZE.items():
            alignments[rule] = [symmetrize(f, b) for f, b in zip(forward, backward, strict=True)]
        scores = {name: score_alignments(links, gold).plain() for name, links in alignments.items()}
        results[name] = {"seconds": seconds, "scores": scores}
    return results


def show(title: str, results: dict[str, dict[str, Any]]) -> None:
    print(f"\n{title}")
    print(f"{'':<24}{'':<20}{'AER':>7}{'P':>7}{'R':>7}{'F1':>7}   AER: Saccade − this system")
    for name, result in results.items():
        print(f"{name}, {result['seconds']:.0f} s")
        for alignment, scores in result["scores"].items():
            difference = results["saccade"]["scores"][alignment]["aer"] - scores["aer"]
            columns = "".join(f"{scores[key]:7.2f}" for key in ("aer", "precision", "recall", "f1"))
            print(
                f"{'':<24}{alignment:<20}{columns}"
                + (f"   {difference:+.2f}" if not name.startswith("saccade") else "")
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with tatoeba/ and align/gold/")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    texts: dict[str, list[Pair]] = {"enfr": tatoeba(arguments.folder), "roen": []}
    results = {}
    for name, extra in texts.items():
        pairs, gold = gold_pairs(arguments.folder, name)
        results[name] = compare([*extra, *pairs], gold)
        if not arguments.json:
            show(f"{name}: {len(extra) + len(pairs):,} pairs, {len(gold)} of them with gold links", results[name])
    if arguments.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
