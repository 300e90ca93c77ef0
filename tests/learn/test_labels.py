"""Small encoders learn to tag words and to classify series with any seed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learn.small import new_seed
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


def write_words(folder: Path, generator: np.random.Generator) -> None:
    """Each word is labeled "old" if it occurred before in its row, else "new"."""
    for split, rows in ROWS.items():
        with (folder / f"{split}.tsv").open("w", encoding="utf-8") as file:
            for _ in range(rows):
                words = generator.integers(SYMBOLS, size=generator.integers(1, LONGEST + 1)).tolist()
                labels = ["old" if word in words[:i] else "new" for i, word in enumerate(words)]
                file.write("".join(f"w{word}\t{label}\n" for word, label in zip(words, labels, strict=True)) + "\n")


def write_waves(folder: Path, generator: np.random.Generator) -> None:
    """Sine waves labeled by their frequency (one of three), with random phase, amplitude, offset and noise."""
    for split, rows in ROWS.items():
        arrays: dict[str, Any] = {}
        for row in range(rows):
            label, length = generator.integers(len(PERIODS)), generator.integers(20, 41)
            phase = 2 * np.pi * (np.arange(length) / PERIODS[label] + generator.random())
            waves = np.stack([np.sin(phase), np.cos(phase)], 1) * generator.uniform(50, 100) + generator.normal(300, 5)
            name = f"{split}{row}"
            arrays |= {f"{name}_x": waves + generator.normal(0, 5, waves.shape), f"{name}_y": np.array(label)}
        np.savez(folder / f"{split}.npz", **arrays)


def recipe(folder: Path, task: str, encoder: str, seed: int) -> dict[str, Any]:
    kind, suffix = ("columns", "tsv") if task == "tagging" else ("series", "npz")
    embedding = "tokens" if task == "tagging" else {"kind": "series", "width": 3}
    return {
        "seed": seed,
        "task": task,
        "data": {"folder": str(folder), "tokenizer": "words", "longest": 40}
        | {split: {"kind": kind, "file": f"{split}.{suffix}"} for split in ROWS},
        "model": {
            "dim": 64,
            "head": "linear",
            "dropout": {"residual": 0.0, "embedding": 0.0},
            "encoder": ENCODERS[encoder] | {"embedding": embedding},
        },
        "train": {
            "updates": 400 if task == "tagging" else 100,
            "batch_tokens": 1000,
            "schedule": {"kind": "linear", "rate": 0.004, "warmup": 50},
            "validate_every": 400,
        },
    }


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(("task", "threshold"), [("tagging", 99), ("classification", 95)])
def test_encoder_labels_unseen_rows(task: str, threshold: float, encoder: str, tmp_path: Path) -> None:
    seed = new_seed()
    write = write_words if task == "tagging" else write_waves
    write(tmp_path, np.random.default_rng(seed))
    run = api.train(recipe(tmp_path, task, encoder, seed), tmp_path / "run", report=Silent())
    accuracy = run.evaluate()["accuracy"]
    assert accuracy >= threshold, f"{task} by {encoder} with seed {seed}: {accuracy:.1f} %"
