"""Text for a student: each source with its own translation and with that of each teacher (Kim & Rush 2016).

    python recipes/distil.py SOURCE TARGET FOLDER RUN [RUN ...] [--beam 5]

SOURCE and TARGET are what the teachers were trained on, a sentence a line, plain or .gz; each RUN is one of them, such
as the same recipe with another seed. FOLDER gets `train.src` and `train.tgt`: every source once with its own target and
once with each translation that is not like one before it. What teachers say is easier to learn than what people say,
and several ways of saying it keep a student from learning them by heart.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import saccade
from saccade.console import track
from saccade.decode.engine import in_order, search_settings
from saccade.lines import file_lines


def said_by(run: Path, sources: list[str], beam: int) -> Iterator[str]:
    teacher = saccade.load(run, engine="auto")
    search = {"search": {"kind": "beam", "size": beam}, "text_only": True}
    found = in_order(teacher.engine.find(sources, search_settings(teacher.recipe.decode, search)))
    return (outputs[0].text for outputs in track(found, len(sources), run.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--beam", type=int, default=5)
    given = parser.parse_args()
    sources, targets = [*file_lines(given.source)], [*file_lines(given.target)]
    if len(sources) != len(targets):
        parser.error(f"{given.source} has {len(sources):,} lines and {given.target} {len(targets):,}")
    ways = zip(targets, *(said_by(run, sources, given.beam) for run in given.runs), strict=True)
    pairs = [(source, text) for source, texts in zip(sources, ways, strict=True) for text in dict.fromkeys(texts)]
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, side in (("train.src", 0), ("train.tgt", 1)):
        (given.folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8", newline="\n")
    print(f"{len(pairs):,} pairs of {len(sources):,} sources in {given.folder}")


if __name__ == "__main__":
    main()
