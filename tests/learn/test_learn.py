"""A small model learns small tasks well, whatever the seed."""

from pathlib import Path

import pytest

from learn.small import any_seed, recipe, share_right

HEADS = {"heads": 4}
MODEL = {
    "dim": 64,
    "block": {"self": HEADS, "cross": HEADS, "feed_forward": {"inner": 128}},
    "encoder": {"depth": 2},
    "decoder": {"depth": 2},
}


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_it_learns_what_it_has_not_seen(task: str, attempt: int, tmp_path: Path) -> None:
    seed = any_seed()
    right = share_right(recipe(task, seed, MODEL, longest=6, updates=500), tmp_path / "run")
    assert right >= 0.99, f"{task} with seed {seed}: {right:.1%} are right"
