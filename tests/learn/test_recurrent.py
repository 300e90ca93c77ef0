"""Recurrent models learn what needs attention, whatever the seed, and go together with Transformers on either side."""

import time
from pathlib import Path
from typing import Any

import pytest

from saccade import api
from saccade.training.progress import Silent

# Strings so long that a summary of 64 numbers is not enough: without attention less than eight in ten come out right.
SYMBOLS, LONGEST = 10, 8
HEADS = {"heads": 4}
BLOCK = {"self": HEADS, "memory": HEADS, "feed_forward": {"inner": 128}}
GRU: dict[str, Any] = {"kind": "recurrent", "cell": "gru"}
LSTM: dict[str, Any] = {"kind": "recurrent", "cell": "lstm"}
ADDITIVE = {"kind": "bare", "score": "additive"}

MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {  # task, updates, sides
    "gru, additive, before": ("reverse", 500, {"encoder": GRU, "decoder": GRU | {"memory": ADDITIVE}}),
    "lstm, multiplicative, after, fed": (
        "copy",
        500,
        {
            "encoder": LSTM,
            "decoder": LSTM
            | {
                "memory": {"kind": "bare", "score": "multiplicative"},
                "attend": "after",
                "input_feeding": True,
                "readout": "attentional",
            },
        },
    ),
    "transformer to gru": (
        "copy",
        500,
        {"encoder": {"depth": 2, "block": BLOCK}, "decoder": GRU | {"memory": ADDITIVE}},
    ),
    "gru to transformer": ("reverse", 1000, {"encoder": GRU, "decoder": {"depth": 1, "block": BLOCK}}),
}


def recipe(task: str, seed: int, updates: int, model: dict[str, Any], rate: float) -> dict[str, Any]:
    text = {"kind": task, "symbols": SYMBOLS, "longest": LONGEST, "seed": seed}
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


def seed() -> int:
    return time.time_ns() % 1_000_000_007  # no lucky number: another one each time


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", MODELS)
def test_it_learns_what_it_has_not_seen(name: str, tmp_path: Path) -> None:
    task, updates, sides = MODELS[name]
    chosen = seed()
    right = share_right(recipe(task, chosen, updates, {"dim": 64} | sides, 0.004), tmp_path / "run")
    assert right >= 0.99, f"{task} with seed {chosen}: {right:.1%} are right"


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_choices_by_lot_are_learned_too(tmp_path: Path) -> None:
    """Where choices are not rewarded, three in four come out right at best: the summary is all there is."""
    sides = {"encoder": GRU, "decoder": GRU | {"memory": ADDITIVE | {"pick": "hard"}}}
    chosen = seed()
    right = share_right(recipe("copy", chosen, 800, {"dim": 48} | sides, 0.006), tmp_path / "run")
    assert right >= 0.9, f"seed {chosen}: {right:.1%} are right"
