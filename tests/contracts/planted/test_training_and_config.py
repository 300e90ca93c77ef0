"""The checks of checkpoints, optimizers, wiring and TOML fail on planted defects."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from contracts.checks import config as config_checks
from contracts.checks import models as model_checks
from contracts.checks.common import perturbed
from contracts.checks.config import check_toml, check_wiring
from contracts.checks.models import check_adoption, check_frozen_weights, check_save_and_load
from contracts.checks.optimizers import check_optimizer, check_optimizer_resumes
from contracts.variants import DEFAULT, named
from saccade.optim.freeze import freeze
from saccade.parts import LayerNorm, heads
from saccade.runs import weights
from saccade.training import start

pytestmark = pytest.mark.slow
NAMED_TENSORS = weights.named_tensors  # the original function: a defect calls it after it is patched


def named_tensors_without_biases(model: nn.Module) -> Any:
    tensors, aliases = NAMED_TENSORS(model)
    return {name: tensor for name, tensor in tensors.items() if not name.endswith("bias")}, aliases


def test_contract_fails_on_checkpoint_without_biases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(weights, "named_tensors", named_tensors_without_biases)
    with pytest.raises(AssertionError):
        check_save_and_load(DEFAULT.fresh, tmp_path)


def test_contract_fails_on_adoption_that_drops_a_tensor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(start, "named_tensors", named_tensors_without_biases)
    with pytest.raises(AssertionError):
        check_adoption(DEFAULT.fresh, tmp_path)


def test_contract_fails_on_frozen_weights_that_get_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    check_frozen_weights(perturbed(DEFAULT.fresh()))
    monkeypatch.setattr(model_checks, "freeze", lambda model, patterns: freeze(model, patterns[1:]))
    with pytest.raises(AssertionError):
        check_frozen_weights(perturbed(DEFAULT.fresh()))


def test_contract_fails_on_bias_that_is_forgotten_if_its_matrix_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = heads.ChunkedCrossEntropy.apply

    def apply_without_bias(hidden: Any, weight: Any, bias: Any, *rest: Any) -> Any:
        return apply(hidden, weight, bias if weight.requires_grad else bias.detach(), *rest)

    model = perturbed(named("head=linear").fresh())
    check_frozen_weights(model)
    monkeypatch.setattr(heads.ChunkedCrossEntropy, "apply", apply_without_bias)
    with pytest.raises(AssertionError):
        check_frozen_weights(model)


def test_contract_fails_on_optimizer_without_biases() -> None:
    with pytest.raises(AssertionError):
        check_optimizer(lambda model: torch.optim.AdamW(itertools.islice(model.parameters(), 1)))


class AdamWithIntegerState(torch.optim.AdamW):
    """Its state has an entry that is not a tensor, which a checkpoint cannot hold."""

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        for state in self.state.values():
            state["count"] = 1
        return result


def test_contract_fails_on_optimizer_state_that_is_no_tensor() -> None:
    with pytest.raises(AssertionError):
        check_optimizer(lambda model: AdamWithIntegerState(model.parameters()))


class AdamWithHiddenCount:
    """Divides its rate by a count that is not part of its state."""

    def __init__(self, model: nn.Module):
        self.inner, self.count = torch.optim.AdamW(model.parameters()), 0
        self.state, self.param_groups, self.zero_grad = self.inner.state, self.inner.param_groups, self.inner.zero_grad

    def step(self) -> None:
        self.count += 1
        for group in self.param_groups:
            group["lr"] /= self.count
        self.inner.step()


def test_contract_fails_on_optimizer_that_does_not_resume() -> None:
    with pytest.raises(AssertionError):
        check_optimizer_resumes(AdamWithHiddenCount)


class PartWithMisspelledWiring:
    def __init__(self, dim: int, depht: int = 0) -> None: ...


def test_contract_fails_on_wiring_that_no_site_passes() -> None:
    with pytest.raises(AssertionError):
        check_wiring(PartWithMisspelledWiring, {"dim", "depth"})


def test_contract_fails_on_option_missing_in_toml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_checks, "to_toml", lambda config: '[slot]\nkind = "layer"\n')
    with pytest.raises(AssertionError):
        check_toml({"layer": LayerNorm}, {"kind": "layer", "eps": 0.5})
