"""A small Transformer learns copy, reverse and sort with any seed."""

from pathlib import Path

import pytest

from learn.small import accuracy, new_seed, recipe

HEADS = {"heads": 4}
MODEL = {
    "dim": 64,
    "block": {"self": HEADS, "cross": HEADS, "feed_forward": {"inner": 128}},
    "encoder": {"depth": 2},
    "decoder": {"depth": 2},
}


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_transformer_solves_unseen_rows(task: str, tmp_path: Path) -> None:
    seed = new_seed()
    fraction = accuracy(recipe(task, seed, MODEL, longest=6, updates=500), tmp_path / "run")
    assert fraction >= 0.99, f"{task} with seed {seed}: {fraction:.1%} are correct"
