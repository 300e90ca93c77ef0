"""Recurrent models learn what needs attention, whatever the seed, and go together with Transformers on either side."""

from pathlib import Path
from typing import Any

import pytest

from learn.small import any_seed, recipe, share_right

# Strings so long that a summary of 64 numbers is not enough: without attention less than eight in ten come out right.
LONGEST = 8
HEADS = {"heads": 4}
BLOCK = {"self": HEADS, "cross": HEADS, "feed_forward": {"inner": 128}}
GRU: dict[str, Any] = {"kind": "recurrent", "cell": "gru"}
LSTM: dict[str, Any] = {"kind": "recurrent", "cell": "lstm"}
ADDITIVE = {"kind": "unprojected", "score": "additive"}

MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {  # task, updates, sides
    "gru, additive, before": ("reverse", 500, {"encoder": GRU, "decoder": GRU | {"cross": ADDITIVE}}),
    "lstm, multiplicative, after, fed": (
        "copy",
        500,
        {
            "encoder": LSTM,
            "decoder": LSTM
            | {
                "cross": {"kind": "unprojected", "score": "multiplicative"},
                "attend": "after",
                "input_feeding": True,
                "readout": "attentional",
            },
        },
    ),
    "transformer to gru": (
        "copy",
        500,
        {"encoder": {"depth": 2, "block": BLOCK}, "decoder": GRU | {"cross": ADDITIVE}},
    ),
    "gru to transformer": ("reverse", 1000, {"encoder": GRU, "decoder": {"depth": 1, "block": BLOCK}}),
}


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", MODELS)
def test_it_learns_what_it_has_not_seen(name: str, tmp_path: Path) -> None:
    task, updates, sides = MODELS[name]
    seed = any_seed()
    right = share_right(recipe(task, seed, {"dim": 64} | sides, longest=LONGEST, updates=updates), tmp_path / "run")
    assert right >= 0.99, f"{task} with seed {seed}: {right:.1%} are right"


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_choices_by_lot_are_learned_too(tmp_path: Path) -> None:
    """Where choices are not rewarded, three in four come out right at best: the summary is all there is."""
    sides = {"encoder": GRU, "decoder": GRU | {"cross": ADDITIVE | {"normalizer": "hard"}}}
    seed = any_seed()
    right = share_right(
        recipe("copy", seed, {"dim": 48} | sides, longest=LONGEST, updates=800, rate=0.006), tmp_path / "run"
    )
    assert right >= 0.9, f"seed {seed}: {right:.1%} are right"
