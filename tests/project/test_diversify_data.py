"""Text made of text: the pairs as they stand, and what models of either direction make of each side."""

import runpy
import sys
from pathlib import Path

import pytest

from formats.small import SOURCES, TARGETS, make_run

SCRIPT = Path(__file__).parents[2] / "recipes" / "diversify.py"


def test_people_and_models_of_both_directions_are_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people = [*zip(SOURCES, TARGETS, strict=False)]
    one, two, back = (make_run(tmp_path / name, seed=seed) for name, seed in (("one", 1), ("two", 2), ("back", 3)))
    sides = [[*side] for side in zip(*people, strict=True)]
    for name, lines in zip(("src", "tgt"), sides, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    out = tmp_path / "out"
    texts = [tmp_path / "src", tmp_path / "tgt", out]
    runs = ["--forward", one.folder.path, two.folder.path, "--backward", back.folder.path]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, [*texts, *runs]), "--beam", "1"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    found = zip(*((out / name).read_text("utf-8").split("\n")[:-1] for name in ("train.src", "train.tgt")), strict=True)
    sources, targets = sides
    wanted = [
        *people,
        *zip(sources, one.translate(sources, beam=1), strict=True),
        *zip(sources, two.translate(sources, beam=1), strict=True),
        *zip(back.translate(targets, beam=1), targets, strict=True),
    ]
    assert [*found] == [*dict.fromkeys(wanted)]
    assert len({*wanted}) > len({*people}) + len(people), "the models say what people said: nothing was tested"
