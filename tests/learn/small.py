"""What the tests of learning share: small tasks, a short training, and the share of unseen rows that come out right."""

import time
from pathlib import Path
from typing import Any

from saccade import api
from saccade.training.progress import Silent


def recipe(
    task: str, seed: int, model: dict[str, Any], *, longest: int, updates: int, rate: float = 0.004
) -> dict[str, Any]:
    text = {"kind": task, "symbols": 10, "longest": longest, "seed": seed}
    return {
        "seed": seed,
        "data": {
            "train": text | {"split": "train", "rows": 8000},
            "dev": text | {"split": "dev", "rows": 50},
            "test": text | {"split": "test", "rows": 500},
            "tokenizer": "words",
        },
        "model": {"dropout": {"residual": 0.0, "embedding": 0.0}} | model,
        # the rate ends at zero, so the last weights are good ones and not those of an unlucky update
        "train": {
            "updates": updates,
            "batch_tokens": 500,
            "schedule": {"kind": "linear", "rate": rate, "warmup": 50},
            "validate_every": updates,
        },
        "decode": {"search": "greedy"},
    }


def share_right(recipe: dict[str, Any], folder: Path) -> float:
    run = api.train(recipe, folder, report=Silent())
    pairs = run.test_pairs()
    found = run.translate([source for source, _ in pairs])
    return sum(output == wanted for output, (_, wanted) in zip(found, pairs, strict=True)) / len(pairs)


def any_seed() -> int:
    return time.time_ns() % 1_000_000_007  # no lucky number: another one each time
