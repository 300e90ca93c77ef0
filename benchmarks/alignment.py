"""The statistical aligner of Saccade against eflomal (and fast_align, if it is on the PATH), on the same pairs.

    python benchmarks/alignment.py DIR [--json]

DIR holds tatoeba/fra-eng.zip and align/gold. Two tasks: English-French, learned from Tatoeba and the text of the gold
pairs, and Romanian-English, learned from the text of 248 gold pairs alone. All systems get the same words in lower
case, and none sees a gold link; but Saccade's few constants were chosen with an eye on these error rates, while the
peers run as they come. `forward` links each target word to at most one source word, `backward` the other way round.
The seconds are those of both directions. eflomal draws samples: its error rates move by about half a point from run to
run; Saccade and fast_align always say the same.

    pip install eflomal==2.0.0        # it is needed only here
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
from saccade.data.links import Gold, Links, parse_all, transposed
from saccade.metrics.alignment import score_alignments

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes" / "alignment"))
import prepare  # pyright: ignore[reportMissingImports]

Words = list[list[str]]
Pair = tuple[list[str], list[str]]
Both = tuple[list[Links], list[Links]]  # forward and backward, each as (source word, target word)
Aligner = Callable[[Words, Words], Both]

# ── the words, cut as in the recipe ───────────────────────────────────────────────────────────────


def tatoeba(folder: Path) -> list[Pair]:
    return [_split(pair) for pair in prepare.tatoeba(folder / "tatoeba" / "fra-eng.zip")["train"]]


def gold_pairs(folder: Path, name: str) -> tuple[list[Pair], list[Gold]]:
    gold = (folder / "align" / "gold" / f"{name}.gold").read_text("utf-8").rstrip("\n").split("\n")
    pairs = prepare.gold(folder / "align" / "gold" / f"{name}.src-tgt")
    return [_split(pair) for pair in pairs], parse_all(gold, f"{name}.gold")


def _split(pair: tuple[str, str]) -> Pair:
    return pair[0].split(), pair[1].split()


# ── the systems ───────────────────────────────────────────────────────────────────────────────────


def saccade(sources: Words, targets: Words) -> Both:
    return statistical.align(sources, targets), [*map(transposed, statistical.align(targets, sources))]


def saccade_plain(sources: Words, targets: Words) -> Both:
    forward = statistical.align(sources, targets, fertility=False)
    return forward, [*map(transposed, statistical.align(targets, sources, fertility=False))]


def eflomal(sources: Words, targets: Words) -> Both:
    from eflomal import Aligner  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder:
        names = [str(Path(folder, name)) for name in ("forward", "backward")]
        Aligner().align([*map(" ".join, sources)], [*map(" ".join, targets)], *names)
        forward, backward = (_read(Path(name).read_text("utf-8")) for name in names)
    return forward, backward


def fast_align(sources: Words, targets: Words) -> Both:
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
    return [each.possible for each in parse_all(text.rstrip("\n").split("\n"), "the peer's links", base=0)]


def systems() -> dict[str, Aligner]:
    """Those that are here; what is missing is said in a line."""
    found: dict[str, Aligner] = {"saccade": saccade, "saccade, no fertility": saccade_plain}
    try:
        import eflomal as _there  # pyright: ignore[reportMissingImports]  # noqa: F401

        found["eflomal"] = eflomal
    except ImportError:
        print("eflomal is not installed, so it is left out: pip install eflomal==2.0.0", file=sys.stderr)
    if shutil.which("fast_align"):
        found["fast_align"] = fast_align
    return found


# ── the comparison ────────────────────────────────────────────────────────────────────────────────


def compare(pairs: Sequence[Pair], gold: Sequence[Gold]) -> dict[str, dict[str, Any]]:
    """Of each system: the seconds it took, and its scores by direction and symmetrisation on the last pairs."""
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    results: dict[str, dict[str, Any]] = {}
    for name, system in systems().items():
        began = time.perf_counter()
        forward, backward = (found[-len(gold) :] for found in system(sources, targets))
        seconds = time.perf_counter() - began
        ways = {"forward": forward, "backward": backward}
        for rule, joined in SYMMETRIZE.items():
            ways[rule] = [joined(*both) for both in zip(forward, backward, strict=True)]
        scores = {way: score_alignments(links, gold).plain() for way, links in ways.items()}
        results[name] = {"seconds": seconds, "scores": scores}
    return results


def show(title: str, results: dict[str, dict[str, Any]]) -> None:
    print(f"\n{title}")
    print(f"{'':<24}{'':<20}{'AER':>7}{'P':>7}{'R':>7}{'F1':>7}   Saccade − peer, AER points")
    for name, result in results.items():
        print(f"{name}, {result['seconds']:.0f} s")
        for way, scores in result["scores"].items():
            less = results["saccade"]["scores"][way]["aer"] - scores["aer"]
            columns = "".join(f"{scores[key]:7.2f}" for key in ("aer", "precision", "recall", "f1"))
            print(f"{'':<24}{way:<20}{columns}" + (f"   {less:+.2f}" if not name.startswith("saccade") else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    texts: dict[str, list[Pair]] = {"enfr": tatoeba(arguments.folder), "roen": []}
    found = {}
    for name, more in texts.items():
        pairs, gold = gold_pairs(arguments.folder, name)
        found[name] = compare([*more, *pairs], gold)
        if not arguments.json:
            show(f"{name}: {len(more) + len(pairs):,} pairs, {len(gold)} of them with gold links", found[name])
    if arguments.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
