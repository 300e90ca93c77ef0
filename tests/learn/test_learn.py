"""A small model learns small tasks well, whatever the seed."""

import time
from pathlib import Path
from typing import Any

import pytest

from saccade import api
from saccade.training.progress import Silent

SYMBOLS, LONGEST = 10, 6
UPDATES = 500


def recipe(task: str, seed: int) -> dict[str, Any]:
    text = {"kind": task, "symbols": SYMBOLS, "longest": LONGEST, "seed": seed}
    heads = {"heads": 4}
    return {
        "seed": seed,
        "data": {
            "train": text | {"split": "train", "rows": 8000},
            "dev": text | {"split": "dev", "rows": 50},
            "test": text | {"split": "test", "rows": 500},
            "tokenizer": "words",
        },
        "model": {
            "dim": 64,
            "dropout": {"residual": 0.0, "embedding": 0.0},
            "block": {"self": heads, "memory": heads, "feed_forward": {"inner": 128}},
            "encoder": {"depth": 2},
            "decoder": {"depth": 2},
        },
        # the rate ends at zero, so the last weights are good ones and not those of an unlucky update
        "train": {
            "updates": UPDATES,
            "batch_tokens": 500,
            "schedule": {"kind": "linear", "rate": 0.004, "warmup": 50},
            "validate_every": UPDATES,
        },
        "decode": {"search": "greedy"},
    }


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_it_learns_what_it_has_not_seen(task: str, attempt: int, tmp_path: Path) -> None:
    seed = time.time_ns() % 1_000_000_007  # no lucky number: another one each time
    run = api.train(recipe(task, seed), tmp_path / "run", report=Silent())
    pairs = run.test_pairs()
    right = sum(found == wanted for found, (_, wanted) in zip(run.translate([s for s, _ in pairs]), pairs, strict=True))
    assert right >= 0.99 * len(pairs), f"{task} with seed {seed}: {right} of {len(pairs)} are right"
