"""docs/claims/hard_and_soft.py: the system "hard, no baseline" is trained without a baseline."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import saccade
from saccade.parts import NORMALIZERS, Hard
from saccade.training.progress import Silent

CLAIMS = Path(__file__).parents[2] / "docs" / "claims"


@pytest.fixture
def hard_and_soft(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as a module. The normalizer that it adds to the table is removed after the test."""
    monkeypatch.syspath_prepend(str(CLAIMS))
    kinds = dict(NORMALIZERS)
    yield importlib.import_module("hard_and_soft")
    NORMALIZERS.clear()
    NORMALIZERS.update(kinds)
    for name in ("hard_and_soft", "common"):
        del sys.modules[name]


def trained_baseline(hard_and_soft: ModuleType, system: str, folder: Path) -> float:
    """The baseline of a system of the claim after two updates."""
    recipe = hard_and_soft.recipe(hard_and_soft.SYSTEMS[system][1], seed=1)
    small = {"data": {"train": {"rows": 100}, "dev": {"rows": 2}}, "train": {"updates": 2, "validate_every": 2}}
    run = saccade.train(recipe, folder, set=small, report=Silent())
    normalizer = run.model.get_submodule(f"{hard_and_soft.ATTENTION}.normalizer")
    assert isinstance(normalizer, Hard)
    return normalizer.baseline.item()


def test_only_the_system_with_a_baseline_learns_one(hard_and_soft: ModuleType, tmp_path: Path) -> None:
    assert trained_baseline(hard_and_soft, "hard", tmp_path / "hard") > 1
    assert trained_baseline(hard_and_soft, "hard_no_baseline", tmp_path / "without") == 0


def test_policy_loss_without_a_baseline_does_not_subtract_one(hard_and_soft: ModuleType) -> None:
    normalizer = hard_and_soft.NoBaseline(entropy_weight=0.0)
    sampled = torch.stack([torch.full((1, 1, 2), -0.5), torch.zeros(1, 1, 2)], -1)  # log p and entropy
    cost, count, keep = torch.tensor([[4.0, 2.0]]), torch.tensor([[2.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    for _ in range(3):
        assert normalizer.policy_loss(sampled, cost, count, keep).item() == pytest.approx(-0.5 * (4 + 2))
