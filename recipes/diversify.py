"""More text to learn from, made of the text there is (Nguyen et al. 2020): each pair as it stands, each source with
what forward models make of it, and each target with the sources that backward models think it came from.

    python recipes/diversify.py SOURCE TARGET FOLDER [--forward RUN ...] [--backward RUN ...] [--beam 5]

SOURCE and TARGET are the text, a sentence a line, plain or .gz; forward runs were trained on it as it is, backward
runs the other way round. FOLDER gets `train.src` and `train.tgt`, each pair once. What models say is easier to learn
than what people say (Kim & Rush 2016), and several ways of saying it keep a model from learning them by heart.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import saccade
from saccade.console import track
from saccade.decode.engine import in_order, search_settings
from saccade.lines import file_lines


def said_by(run: Path, texts: list[str], beam: int) -> Iterator[str]:
    model = saccade.load(run, engine="auto")
    search = {"search": {"kind": "beam", "size": beam}, "scores": False}
    found = track(model.engine.generate(texts, search_settings(model.recipe.decode, search)), len(texts), run.name)
    return (outputs[0].text for outputs in in_order(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--forward", type=Path, nargs="+", default=[], metavar="RUN")
    parser.add_argument("--backward", type=Path, nargs="+", default=[], metavar="RUN")
    parser.add_argument("--beam", type=int, default=5)
    given = parser.parse_args()
    sources, targets = [*file_lines(given.source)], [*file_lines(given.target)]
    if len(sources) != len(targets):
        parser.error(f"{given.source} has {len(sources):,} lines and {given.target} {len(targets):,}")
    pairs = [*zip(sources, targets, strict=True)]
    for run in given.forward:
        pairs += zip(sources, said_by(run, sources, given.beam), strict=True)
    for run in given.backward:
        pairs += zip(said_by(run, targets, given.beam), targets, strict=True)
    pairs = [*dict.fromkeys(pairs)]
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, side in (("train.src", 0), ("train.tgt", 1)):
        (given.folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8", newline="\n")
    print(f"{len(pairs):,} pairs of {len(sources):,} in {given.folder}")


if __name__ == "__main__":
    main()
