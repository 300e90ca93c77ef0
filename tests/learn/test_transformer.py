"""A small Transformer learns copy, reverse and sort with any seed."""

from pathlib import Path

import pytest

from learn.small import accuracy, new_seed, recipe

HEADS = {"heads": 4}
MODEL = {
    "dim": 48,
    "block": {"self": HEADS, "cross": HEADS, "feed_forward": {"inner": 128}},
    "encoder": {"depth": 2},
    "decoder": {"depth": 2},
}


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(("task", "updates"), [("copy", 200), ("reverse", 400), ("sort", 400)])
def test_transformer_solves_unseen_rows(task: str, updates: int, tmp_path: Path) -> None:
    seed = new_seed()
    fraction = accuracy(recipe(task, seed, MODEL, longest=6, updates=updates, rate=0.006), tmp_path / "run")
    assert fraction >= 0.99, f"{task} with seed {seed}: {fraction:.1%} are correct"


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
def test_transformer_learns_as_well_in_bfloat16(tmp_path: Path) -> None:
    seed = new_seed()
    tree = recipe("copy", seed, MODEL, longest=6, updates=200, rate=0.006)
    tree["train"]["precision"] = "bfloat16"
    fraction = accuracy(tree, tmp_path / "run")
    assert fraction >= 0.99, f"copy with seed {seed}: {fraction:.1%} are correct"
