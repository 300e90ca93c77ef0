"""Small encoders learn to label words and series well, whatever the seed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learn.small import any_seed
from saccade import api
from saccade.training.progress import Silent

SYMBOLS, LONGEST = 6, 8
ROWS = {"train": 3000, "dev": 50, "test": 400}
PERIODS = (5, 8, 13)  # frames

STACKED = {"kind": "stacked", "depth": 2, "block": {"self": {"heads": 4}, "feed_forward": {"inner": 128}}}
ENCODERS: dict[str, dict[str, Any]] = {
    "stacked": STACKED,
    "gru": {"kind": "recurrent", "cell": "gru"},
    "lstm": {"kind": "recurrent", "cell": "lstm", "depth": 2},
}


def write_words(folder: Path, dice: np.random.Generator) -> None:
    """Has this symbol been there before?"""
    for split, rows in ROWS.items():
        with (folder / f"{split}.tsv").open("w", encoding="utf-8") as file:
            for _ in range(rows):
                words = dice.integers(SYMBOLS, size=dice.integers(1, LONGEST + 1)).tolist()
                labels = ["old" if word in words[:i] else "new" for i, word in enumerate(words)]
                file.write("".join(f"w{word}\t{label}\n" for word, label in zip(words, labels, strict=True)) + "\n")


def write_waves(folder: Path, dice: np.random.Generator) -> None:
    """Which of three frequencies is it, at any phase, size and offset, under noise?"""
    for split, rows in ROWS.items():
        arrays: dict[str, Any] = {}
        for row in range(rows):
            label, length = dice.integers(len(PERIODS)), dice.integers(20, 41)
            turns = 2 * np.pi * (np.arange(length) / PERIODS[label] + dice.random())
            waves = np.stack([np.sin(turns), np.cos(turns)], 1) * dice.uniform(50, 100) + dice.normal(300, 5)
            name = f"{split}{row}"
            arrays |= {f"{name}_x": waves + dice.normal(0, 5, waves.shape), f"{name}_y": np.array(label)}
        np.savez(folder / f"{split}.npz", **arrays)


def recipe(folder: Path, task: str, encoder: str, seed: int) -> dict[str, Any]:
    kind, end = ("columns", "tsv") if task == "tagging" else ("series", "npz")
    embedding = "tokens" if task == "tagging" else {"kind": "series", "width": 3}
    return {
        "seed": seed,
        "task": task,
        "data": {"folder": str(folder), "tokenizer": "words", "longest": 40}
        | {split: {"kind": kind, "file": f"{split}.{end}"} for split in ROWS},
        "model": {
            "dim": 64,
            "head": "linear",
            "dropout": {"residual": 0.0, "embedding": 0.0},
            "encoder": ENCODERS[encoder] | {"embedding": embedding},
        },
        "train": {
            "updates": 800 if task == "tagging" else 200,
            "batch_tokens": 1000,
            "schedule": {"kind": "linear", "rate": 0.004, "warmup": 50},
            "validate_every": 800,
        },
    }


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(("task", "least"), [("tagging", 99), ("classification", 95)])
def test_it_learns_what_it_has_not_seen(task: str, least: float, encoder: str, tmp_path: Path) -> None:
    seed = any_seed()
    write = write_words if task == "tagging" else write_waves
    write(tmp_path, np.random.default_rng(seed))
    run = api.train(recipe(tmp_path, task, encoder, seed), tmp_path / "run", report=Silent())
    accuracy = run.evaluate()["accuracy"]
    assert accuracy >= least, f"{task} by {encoder} with seed {seed}: {accuracy:.1f} %"
