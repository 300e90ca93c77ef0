"""What a student is given: every source with its own target, and with what each teacher says."""

import runpy
import sys
from pathlib import Path

import pytest

from formats.small import SOURCES, TARGETS, make_run

SCRIPT = Path(__file__).parents[2] / "recipes" / "distil.py"


def test_a_student_hears_people_and_teachers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people = [*zip(SOURCES, TARGETS, strict=False)]
    runs = [make_run(tmp_path / name, seed=seed) for name, seed in (("one", 1), ("two", 2))]
    for name, lines in zip(("src", "tgt"), zip(*people, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    out = tmp_path / "out"
    paths = [tmp_path / "src", tmp_path / "tgt", out, *(run.folder.path for run in runs)]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, paths), "--beam", "1"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    sources, targets = ((out / name).read_text("utf-8").split("\n")[:-1] for name in ("train.src", "train.tgt"))
    said = zip(*(run.translate([source for source, _ in people], beam=1) for run in runs), strict=True)
    wanted = [
        (source, text)
        for (source, target), texts in zip(people, said, strict=True)
        for text in dict.fromkeys([target, *texts])
    ]
    assert [*zip(sources, targets, strict=True)] == wanted
    assert len(wanted) > len(people), "the teachers say what people said: nothing was tested"
