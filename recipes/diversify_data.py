"""Data diversification (Nguyen et al. 2020): original pairs plus synthetic pairs from forward and backward teachers.

    python recipes/diversify_data.py SOURCE TARGET FOLDER
        [--forward-teachers RUN ...] [--backward-teachers RUN ...] [--beam 5]

SOURCE and TARGET are the two sides of the training text, one sentence per line, plain or .gz. A forward teacher
translates SOURCE (sequence-level knowledge distillation, Kim & Rush 2016); a backward teacher was trained in the other
direction and translates TARGET (back-translation). FOLDER receives train.src and train.tgt: the original pairs first,
then the pairs (source, forward translation), then (back-translation, target), with duplicate pairs removed.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import saccade
from saccade.console import track
from saccade.decode.engine import changed_decode_config, in_order
from saccade.lines import file_lines


def translate(teacher: Path, sentences: list[str], beam: int) -> Iterator[str]:
    """Yield the best beam-search hypothesis for each sentence, in order."""
    model = saccade.load(teacher, engine="auto")
    search = {"search": {"kind": "beam", "size": beam}, "scores": False}
    results = model.engine.generate(sentences, changed_decode_config(model.recipe.decode, search))
    return (outputs[0].text for outputs in in_order(track(results, len(sentences), teacher.name)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="source side of the training text")
    parser.add_argument("target", help="target side of the training text")
    parser.add_argument("folder", type=Path, help="output folder for train.src and train.tgt")
    parser.add_argument(
        "--forward-teachers", type=Path, nargs="+", default=[], metavar="RUN", help="source → target runs"
    )
    parser.add_argument(
        "--backward-teachers", type=Path, nargs="+", default=[], metavar="RUN", help="target → source runs"
    )
    parser.add_argument("--beam", type=int, default=5, help="beam size of the teachers")
    options = parser.parse_args()
    sources, targets = [*file_lines(options.source)], [*file_lines(options.target)]
    if len(sources) != len(targets):
        parser.error(
            f"{options.source} has {len(sources):,} lines and {options.target} has {len(targets):,}; "
            "line n of one must translate line n of the other"
        )
    pairs = [*zip(sources, targets, strict=True)]
    for teacher in options.forward_teachers:
        pairs += zip(sources, translate(teacher, sources, options.beam), strict=True)
    for teacher in options.backward_teachers:
        pairs += zip(translate(teacher, targets, options.beam), targets, strict=True)
    pairs = [*dict.fromkeys(pairs)]
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, side in (("train.src", 0), ("train.tgt", 1)):
        (options.folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8", newline="\n")
    print(f"{options.folder}: {len(pairs):,} pairs, made from {len(sources):,} original pairs")


if __name__ == "__main__":
    main()
