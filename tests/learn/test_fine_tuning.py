"""A translator of dates into German, fine-tuned to French, is better than one trained from scratch for as long."""

from pathlib import Path
from typing import Any

import pytest

from saccade import api
from saccade.training.progress import Silent

UPDATES = 60


def chrf(to: str, updates: int, folder: Path, changes: dict[str, Any] | None = None) -> float:
    """Train the demo from English to a language for some updates; chrF on unseen dates."""
    dates = {"kind": "dates", "from": "en", "to": to}
    recipe = {
        "extends": "demo",
        "data": {
            "train": dates | {"rows": 4000},
            "dev": dates | {"rows": 50},
            "test": dates | {"rows": 300},
            "tokenizer": {"byte_fallback": True, "size": 400},  # German text has no é
        },
        "train": {
            "updates": updates,
            "batch_tokens": 1024,
            "schedule": {"kind": "linear", "rate": 0.005, "warmup": 30},
            "validate_every": updates,
            **(changes or {}),
        },
    }
    run = api.train(recipe, folder, report=Silent())
    return run.evaluate()["chrf"]


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
def test_fine_tuned_translator_beats_one_from_scratch_at_equal_updates(tmp_path: Path) -> None:
    chrf("de", 200, tmp_path / "german")
    tuned = chrf("fr", UPDATES, tmp_path / "tuned", {"start_from": str(tmp_path / "german")})
    scratch = chrf("fr", UPDATES, tmp_path / "scratch")
    print(tuned, scratch)
    assert tuned > scratch + 20
