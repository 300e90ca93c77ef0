"""A translator of German dates, fine-tuned to French ones, is better than one trained on those alone for as long."""

from pathlib import Path

import pytest

from saccade import api
from saccade.training.progress import Silent


def chrf(language: str, updates: int, folder: Path, parent: str = "") -> float:
    """Train the demo from a language to English for some updates; chrF on unseen dates."""
    dates = {"kind": "dates", "from": language, "to": "en"}
    recipe = {
        "extends": "demo",
        "data": {
            "train": dates | {"rows": 4000},
            "dev": dates | {"rows": 50},
            "test": dates | {"rows": 100},
            "tokenizer": {"byte_fallback": True, "size": 400},  # German text has no é
        },
        "train": {
            "updates": updates,
            "batch_tokens": 1024,
            "schedule": {"kind": "linear", "rate": 0.005, "warmup": 20},
            "validate_every": updates,
            "start_from": parent,
        },
    }
    return api.train(recipe, folder, report=Silent()).evaluate()["chrf"]


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
def test_fine_tuned_translator_beats_one_from_scratch_at_equal_updates_on_the_new_language(tmp_path: Path) -> None:
    chrf("de", 150, tmp_path / "german")
    tuned = chrf("fr", 40, tmp_path / "tuned", str(tmp_path / "german"))
    scratch = chrf("fr", 40, tmp_path / "scratch")
    assert tuned > scratch + 20, f"chrF {tuned:.1f} fine-tuned, {scratch:.1f} from scratch"
