"""Small labeled data sets, and recipes that train on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.recipe import Recipe, recipe_of

KINDS = ("words", "frames", "texts", "series")
TAGGING = pytest.mark.parametrize("kind", ["words", "frames"], indirect=True)


def tagged_sentences(generator: np.random.Generator, rows: int) -> str:
    """Sentences whose words are labeled `old` if they occurred before in the sentence, otherwise `new`. Some words have
    no label."""
    text = ""
    for _ in range(rows):
        seen: set[str] = set()
        for word in generator.choice([*"abcdef"], generator.integers(1, 9)):
            label = "" if generator.random() < 0.1 else "old" if word in seen else "new"
            text += f"{word}\t{label}\n"
            seen.add(word)
        text += "\n"
    return text


def labeled_texts(generator: np.random.Generator, rows: int) -> str:
    """Texts labeled by whether the first word equals the last one."""
    texts = ([*generator.choice([*"abc"], generator.integers(1, 7))] for _ in range(rows))
    return "".join(f"{'same' if text[0] == text[-1] else 'other'} {' '.join(text)}\n" for text in texts)


def labeled_series(generator: np.random.Generator, rows: int, user: str, whole: bool) -> dict[str, Any]:
    """Series labeled by the sign of their slope: one label for each frame, or one for the series if `whole`. The third
    column is constant."""
    arrays: dict[str, Any] = {}
    for row in range(rows):
        slopes = np.repeat(generator.choice([-1, 1], 1 if whole else 4), generator.integers(3, 8))
        walk = np.cumsum(slopes) + generator.normal(0, 0.1, len(slopes))
        arrays[f"{user}_{row}_x"] = np.stack([walk, -1000 * walk, np.full(len(walk), 7.0)], 1)
        names = np.where(slopes > 0, 1, 2)
        arrays[f"{user}_{row}_y"] = names[0] if whole else np.where(generator.random(len(names)) < 0.1, -1, names)
    return arrays


def write_data(folder: Path, kind: str) -> dict[str, Any]:
    """Write the files of the three splits and return the config's `data` table."""
    generator = np.random.default_rng(5)
    sizes = {"train": 40, "dev": 5, "test": 6}
    for split, rows in sizes.items():
        if kind in ("words", "texts"):
            text = tagged_sentences(generator, rows) if kind == "words" else labeled_texts(generator, rows)
            (folder / f"{split}.txt").write_text(text, "utf-8")
        else:
            np.savez(folder / f"{split}.npz", **labeled_series(generator, rows, split, kind == "series"))
    end, source = {"words": ("txt", "columns"), "texts": ("txt", "labeled")}.get(kind, ("npz", "series"))
    return {"folder": str(folder)} | {split: {"kind": source, "file": f"{split}.{end}"} for split in sizes}


def recipe_for(folder: Path, kind: str, **changes: Any) -> Recipe:
    """A recipe with dropout, several batches per update, and series longer than a window."""
    is_series = kind in ("frames", "series")
    tree = {
        "seed": 3,
        "data": write_data(folder, kind) | {"tokenizer": "words", "longest": 12 if kind == "frames" else 20},
        "task": "tagging" if kind in ("words", "frames") else "classification",
        "model": {
            "dim": 16,
            "head": "linear",
            "dropout": dict.fromkeys(("attention", "residual", "feed_forward", "embedding"), 0.2),
            "block": {"self": {"heads": 2}, "feed_forward": {"inner": 32}},
            "encoder": {"depth": 1, "embedding": "series" if is_series else "tokens"},
        },
        "train": {
            "updates": 14,
            "batch_tokens": 40,
            "update_tokens": 6 if kind in ("texts", "series") else 60,
            "schedule": {"kind": "inverse_root", "rate": 0.01, "warmup": 4},
            "log_every": 3,
            "validate_every": 4,
            "keep": 2,
            "average": 2,
        },
    }
    return recipe_of(tree, changes)
