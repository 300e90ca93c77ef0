"""recipes/diversify_data.py: the original pairs, then the translations of both sides by all teachers."""

import runpy
import sys
from pathlib import Path

import pytest

from formats.small import SOURCES, TARGETS, make_run

SCRIPT = Path(__file__).parents[2] / "recipes" / "diversify_data.py"


def test_output_is_original_pairs_and_translations_of_all_teachers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = [*zip(SOURCES, TARGETS, strict=False)]
    sources, targets = [[*side] for side in zip(*original, strict=True)]
    first, second, backward = (make_run(tmp_path / f"teacher-{seed}", seed=seed) for seed in (1, 2, 3))
    for name, lines in (("src", sources), ("tgt", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    out = tmp_path / "out"
    texts = [tmp_path / "src", tmp_path / "tgt", out]
    forward_teachers = ["--forward-teachers", first.folder.path, second.folder.path]
    backward_teachers = ["--backward-teachers", backward.folder.path]
    command = [SCRIPT, *texts, *forward_teachers, *backward_teachers, "--beam", "1"]
    monkeypatch.setattr(sys, "argv", [*map(str, command)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    sides = [(out / name).read_text("utf-8").split("\n")[:-1] for name in ("train.src", "train.tgt")]
    expected = [
        *original,
        *zip(sources, first.translate(sources, beam=1), strict=True),
        *zip(sources, second.translate(sources, beam=1), strict=True),
        *zip(backward.translate(targets, beam=1), targets, strict=True),
    ]
    assert [*zip(*sides, strict=True)] == [*dict.fromkeys(expected)]
    assert len({*expected}) > len({*original}) + len(original), "the teachers' translations are not new pairs"
