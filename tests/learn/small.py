"""Shared by the tests of learning: recipes of small tasks, and the accuracy of a short training on unseen rows."""

import time
from pathlib import Path
from typing import Any

from saccade import api
from saccade.training.progress import Silent


def recipe(
    task: str, seed: int, model: dict[str, Any], *, longest: int, updates: int, rate: float = 0.004
) -> dict[str, Any]:
    source = {"kind": task, "symbols": 10, "longest": longest, "seed": seed}
    return {
        "seed": seed,
        "data": {
            "train": source | {"split": "train", "rows": 8000},
            "dev": source | {"split": "dev", "rows": 50},
            "test": source | {"split": "test", "rows": 500},
            "tokenizer": "words",
        },
        "model": {"dropout": {"residual": 0.0, "embedding": 0.0}} | model,
        # the learning rate ends at zero, so the final weights do not depend on the noise of the last updates
        "train": {
            "updates": updates,
            "batch_tokens": 500,
            "schedule": {"kind": "linear", "rate": rate, "warmup": 50},
            "validate_every": updates,
        },
        "decode": {"search": "greedy"},
    }


def accuracy(recipe: dict[str, Any], folder: Path) -> float:
    """Train a model; the fraction of test rows whose output equals the reference."""
    run = api.train(recipe, folder, report=Silent())
    pairs = run.test_pairs()
    outputs = run.translate([source for source, _ in pairs])
    return sum(output == reference for output, (_, reference) in zip(outputs, pairs, strict=True)) / len(pairs)


def new_seed() -> int:
    """A different seed in every test run, so that the tests do not depend on a lucky one."""
    return time.time_ns() % 1_000_000_007
