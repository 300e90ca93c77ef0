"""Every initialization keeps names and shapes, leaves all weights finite, and touches what it claims to touch."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from contracts.checks.running import small_corpus
from contracts.variants import DEFAULT, VARIANTS, Variant
from saccade.inputs import Tokens
from saccade.models.assemble import Model, assemble
from saccade.models.initializations import (
    INITIALIZATIONS,
    DefaultInitialization,
    GPT2Initialization,
    NamedWeight,
    named_weights,
)
from saccade.recipe import recipe_of
from saccade.tasks.translation import Translation

CALL = GPT2Initialization.__call__


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("kind", INITIALIZATIONS)
def test_initialized_model_can_be_trained(variant: Variant, kind: str) -> None:
    default, model = variant.changed(init="default").fresh().state_dict(), variant.changed(init=kind).fresh()
    assert {name: value.shape for name, value in default.items()} == {
        name: value.shape for name, value in model.state_dict().items()
    }
    assert all(weight.isfinite().all() for weight in model.parameters())
    loss = Translation(variant.tree["encoder"] != "none").loss(model.train(), small_corpus(model).batch(range(4)))
    loss.total.backward()
    assert loss.total.isfinite()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def check_gpt2(default: Model, model: Model) -> None:
    """The standard deviations are those of the formula; what is not named in it is as it was."""
    before = default.state_dict()
    for name, weight in model.named_parameters():
        if re.search(r"norm|bias", name):
            assert torch.equal(weight, before[name]), f"{name} was changed"
            continue
        depth, branches = (2, 4) if name.startswith("encoder.") else (3, 9)
        ends_branch = ".layers." in name and name.endswith(("out.weight", "down.weight"))
        std = 0.02 / branches**0.5 if ends_branch else 0.02
        assert float(weight.detach().std()) == pytest.approx(std, rel=0.05), f"{name} of a stack of {depth} layers"
        assert abs(float(weight.detach().mean())) < 5 * std / weight.numel() ** 0.5, name


def test_gpt2_initialization_has_the_standard_deviations_of_the_paper() -> None:
    check_gpt2(wide_model("default"), wide_model("gpt2"))


def with_wrong_std(self: GPT2Initialization, weight: NamedWeight) -> None:
    CALL(self, weight)
    weight.weight.data *= 1.2


def without_scaled_branches(self: GPT2Initialization, weight: NamedWeight) -> None:
    CALL(self, replace(weight, branches=1))


def with_norms(self: GPT2Initialization, weight: NamedWeight) -> None:
    torch.nn.init.normal_(weight.weight, std=self.std)


@pytest.mark.parametrize("defect", [with_wrong_std, without_scaled_branches, with_norms])
def test_check_of_gpt2_fails_on_planted_defect(defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPT2Initialization, "__call__", defect)
    with pytest.raises(AssertionError):
        check_gpt2(wide_model("default"), wide_model("gpt2"))


def wide_model(kind: str) -> Model:
    block = {"self": {"heads": 2}, "cross": {"heads": 2}, "feed_forward": {"inner": 96}}
    model = {"dim": 64, "init": kind, "block": block, "encoder": {"depth": 2}, "decoder": {"depth": 3}}
    tree: dict[str, Any] = {"data": {"tokenizer": "words"}, "model": model}
    torch.manual_seed(0)
    return assemble(recipe_of(tree).model, Tokens(60), 60)


def test_weights_know_their_layer_depth_and_residual_branches() -> None:
    weights = {weight.name: weight for weight in named_weights(wide_model("default"))}
    place = {name: (w.layer, w.depth, w.branches) for name, w in weights.items()}
    assert place["encoder.layers.1.feed_forward.down.weight"] == (1, 2, 4)
    assert place["decoder.layers.2.cross.out.weight"] == (2, 3, 9)
    assert place["encoder.embedding.table.weight"] == place["decoder.final_norm.weight"] == (None, 0, 0)


def check_draws_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The initialization leaves all weights and the random generator as the parts left them."""
    model = DEFAULT.changed(init=kind).fresh(3).state_dict()
    state = torch.get_rng_state()
    with monkeypatch.context() as patch:
        patch.setattr("saccade.models.assemble.initialize", lambda *_: None)
        uninitialized = DEFAULT.changed(init=kind).fresh(3).state_dict()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, uninitialized[name]) for name, value in model.items())


def test_default_initialization_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """So models of earlier versions have the same initial weights and the same random numbers afterwards."""
    check_draws_nothing("default", monkeypatch)


def drawing(self: DefaultInitialization, weight: NamedWeight) -> None:
    torch.rand(1)


def changing(self: DefaultInitialization, weight: NamedWeight) -> None:
    weight.weight.data *= 1.001


@pytest.mark.parametrize("defect", [drawing, changing])
def test_check_of_default_initialization_fails_on_planted_defect(defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DefaultInitialization, "__call__", defect)
    with pytest.raises(AssertionError):
        check_draws_nothing("default", monkeypatch)


def test_initialization_depends_on_the_seed_only() -> None:
    first, again = (DEFAULT.changed(init="gpt2").fresh(3).state_dict() for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
