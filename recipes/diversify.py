"""More text to learn from, made of the text there is (Nguyen et al. 2020): each pair as it stands, each source with
what forward models make of it, and each target with the sources that backward models think it came from.

    python recipes/diversify.py SOURCE TARGET FOLDER [--forward RUN ...] [--backward RUN ...] [--beam 5] [--nearest]

SOURCE and TARGET are the text, a sentence a line, plain or .gz; forward runs were trained on it as it is, backward
runs the other way round. FOLDER gets `train.src` and `train.tgt`, each pair once. What models say is easier to learn
than what people say (Kim & Rush 2016), and several ways of saying it keep a model from learning them by heart. With
`--nearest` it is not the best of a beam that counts, but what in it comes nearest to what people said.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

import saccade
from saccade.console import track
from saccade.decode.engine import in_order, search_settings
from saccade.lines import file_lines

SENTENCE = BLEU(effective_order=True)


def said_by(run: Path, texts: list[str], people: list[str], beam: int, nearest: bool) -> Iterator[str]:
    """What a model makes of each text, for which people have said this."""
    model = saccade.load(run, engine="auto")
    search = {"search": {"kind": "beam", "size": beam, "best": beam if nearest else 1}, "text_only": not nearest}
    found = track(model.engine.find(texts, search_settings(model.recipe.decode, search)), len(texts), run.name)
    return (near([each.text for each in said], wanted) for said, wanted in zip(in_order(found), people, strict=True))


def near(texts: list[str], wanted: str) -> str:
    """The first of those with the highest BLEU."""
    return max(texts, key=lambda text: SENTENCE.sentence_score(text, [wanted]).score) if texts[1:] else texts[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--forward", type=Path, nargs="+", default=[], metavar="RUN")
    parser.add_argument("--backward", type=Path, nargs="+", default=[], metavar="RUN")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--nearest", action="store_true", help="of a beam, take what is nearest to people's text")
    given = parser.parse_args()
    sources, targets = [*file_lines(given.source)], [*file_lines(given.target)]
    if len(sources) != len(targets):
        parser.error(f"{given.source} has {len(sources):,} lines and {given.target} {len(targets):,}")
    pairs = [*zip(sources, targets, strict=True)]
    for run in given.forward:
        pairs += zip(sources, said_by(run, sources, targets, given.beam, given.nearest), strict=True)
    for run in given.backward:
        pairs += zip(said_by(run, targets, sources, given.beam, given.nearest), targets, strict=True)
    pairs = [*dict.fromkeys(pairs)]
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, side in (("train.src", 0), ("train.tgt", 1)):
        (given.folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8", newline="\n")
    print(f"{len(pairs):,} pairs of {len(sources):,} in {given.folder}")


if __name__ == "__main__":
    main()
