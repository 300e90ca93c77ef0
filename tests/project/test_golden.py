"""The names and shapes of weights do not change, so that existing runs can still be loaded."""

from pathlib import Path
from typing import Any

import pytest

from saccade.inputs import Tokens
from saccade.models.assemble import assemble
from saccade.recipe import recipe_of
from saccade.runs.weights import named_tensors

GOLDEN = Path(__file__).parent / "golden"
TEXT = {"kind": "copy"}
VARIANTS: dict[str, dict[str, Any]] = {
    "transformer-tiny": {"extends": "transformer-tiny"},
    "transformer-base": {"extends": "transformer-base"},
    "decoder-only-tiny": {"extends": "decoder-only-tiny"},
    "t5-bias-gated": {
        "extends": "transformer-tiny",
        "model": {
            "block": {"norm": "rms", "feed_forward": {"kind": "gated", "inner": 17}},
            "encoder": {"position": "t5", "depth": 1},
            "decoder": {"position": "t5", "depth": 1},
        },
    },
    "post-learned-untied": {
        "extends": "transformer-tiny",
        "model": {
            "shared_embeddings": False,
            "head": "linear",
            "block": {"connection": "post"},
            "encoder": {"position": "learned", "depth": 1},
            "decoder": {"position": "learned", "depth": 1},
        },
    },
    "gru-additive": {
        "model": {
            "dim": 128,
            "encoder": {"kind": "recurrent", "cell": "gru"},
            "decoder": {"kind": "recurrent", "cell": "gru", "cross": {"kind": "unprojected", "score": "additive"}},
        },
    },
    "lstm-coverage": {
        "model": {
            "dim": 128,
            "shared_embeddings": False,
            "head": "linear",
            "encoder": {"kind": "recurrent", "cell": "lstm", "depth": 2, "bidirectional": False},
            "decoder": {
                "kind": "recurrent",
                "cell": "lstm",
                "depth": 2,
                "attend": "after",
                "input_feeding": True,
                "readout": "attentional",
                "cross": {
                    "kind": "unprojected",
                    "score": {"kind": "reduced_rank", "rank": 16},
                    "normalizer": "hard",
                    "coverage": True,
                    "coverage_loss": 1.0,
                },
            },
        },
    },
    "transformer-to-recurrent": {
        "extends": "transformer-tiny",
        "model": {
            "encoder": {"depth": 1},
            "decoder": {
                "kind": "recurrent",
                "cross": {"kind": "multi_head", "heads": 4, "score": "multiplicative"},
            },
        },
    },
}


def listing(variant: dict[str, Any]) -> str:
    model = assemble(recipe_of({**variant, "data": {"train": TEXT, "dev": TEXT}}).model, Tokens(100), 100)
    tensors, aliases = named_tensors(model)
    lines = [f"{name} {list(tensor.shape)}" for name, tensor in tensors.items()]
    return "\n".join([*lines, *(f"{alias} = {first}" for alias, first in aliases.items())]) + "\n"


@pytest.mark.parametrize("name", VARIANTS)
def test_weights_have_names_and_shapes_of_format_2(name: str) -> None:
    assert listing(VARIANTS[name]) == (GOLDEN / f"{name}.txt").read_text("utf-8")
