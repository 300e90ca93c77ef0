"""Recurrent models with attention learn long copy and reverse tasks with any seed, also combined with a Transformer on
one side."""

from pathlib import Path
from typing import Any

import pytest

from learn.small import accuracy, new_seed, recipe

# so long that a summary vector of width 64 is not enough: without attention less than 80 % of the outputs are correct
LONGEST = 8
HEADS = {"heads": 4}
BLOCK = {"self": HEADS, "feed_forward": {"inner": 128}}
GRU: dict[str, Any] = {"kind": "recurrent", "cell": "gru"}
LSTM: dict[str, Any] = {"kind": "recurrent", "cell": "lstm"}
ADDITIVE = {"kind": "unprojected", "score": "additive"}

MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {  # task, updates, encoder and decoder
    "gru, additive, before": ("reverse", 300, {"encoder": GRU, "decoder": GRU | {"cross": ADDITIVE}}),
    "lstm, multiplicative, after, input feeding": (
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
        300,
        {"encoder": {"depth": 2, "block": BLOCK}, "decoder": GRU | {"cross": ADDITIVE}},
    ),
    "gru to transformer": (
        "reverse",
        700,
        {"encoder": GRU, "decoder": {"depth": 1, "block": BLOCK | {"cross": HEADS}}},
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("name", MODELS)
def test_recurrent_model_solves_unseen_rows(name: str, tmp_path: Path) -> None:
    task, updates, sides = MODELS[name]
    seed = new_seed()
    fraction = accuracy(recipe(task, seed, {"dim": 64} | sides, longest=LONGEST, updates=updates), tmp_path / "run")
    assert fraction >= 0.99, f"{task} with seed {seed}: {fraction:.1%} are correct"


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
def test_hard_attention_is_learned(tmp_path: Path) -> None:
    """With policy_weight = 0 at most 75 % are correct: attention is not trained, and only the summary is left."""
    sides = {"encoder": GRU, "decoder": GRU | {"cross": ADDITIVE | {"normalizer": "hard"}}}
    seed = new_seed()
    fraction = accuracy(
        recipe("copy", seed, {"dim": 48} | sides, longest=LONGEST, updates=600, rate=0.008), tmp_path / "run"
    )
    assert fraction >= 0.9, f"seed {seed}: {fraction:.1%} are correct"
