"""Frozen weights: which names a pattern matches, what is refused, and what the optimizers leave alone."""

import pytest
import torch

from contracts.checks.common import perturbed
from contracts.checks.running import small_corpus
from contracts.variants import DEFAULT, named
from saccade.errors import ConfigError
from saccade.inputs import Tokens
from saccade.models.assemble import Model, assemble
from saccade.optim.freeze import freeze
from saccade.optim.optimizers import OPTIMIZERS
from saccade.parts import fast_linear
from saccade.parts.token_costs import TokenCost
from saccade.recipe import recipe_of
from saccade.tasks.losses import next_token_loss


def frozen_names(model: Model) -> set[str]:
    return {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}


def test_patterns_match_names_of_weights() -> None:
    model = DEFAULT.fresh()
    freeze(model, ["encoder.layers.?.self.*", "decoder.*.bias"])
    names = frozen_names(model)
    assert "encoder.layers.1.self.query.weight" in names
    assert "decoder.layers.0.cross.out.bias" in names
    assert all(name.startswith("encoder.layers.") or name.endswith(".bias") for name in names)
    assert not any("feed_forward" in name for name in names if name.startswith("encoder"))


def test_message_counts_parameters_and_names_shared_weights() -> None:
    model = DEFAULT.fresh()
    message = freeze(model, ["encoder.*"])
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert message.startswith(f"training {trained:,} of {sum(p.numel() for p in model.parameters()):,} parameters; ")
    assert "decoder.embedding.table.weight" in message.partition("among them")[2]
    assert freeze(DEFAULT.fresh(), ["encoder.layers.*"]).endswith("frozen by train.freeze")
    assert freeze(DEFAULT.fresh(), []) == ""


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [
        ("encodr.*", "encoder.*"),
        ("encoder", "encoder.*"),
        ("decoder.layer.0.*", "decoder.layers.0.*"),
        ("decoder.layers.0.self.query.wieght", "decoder.layers.0.self.query.weight"),
    ],
)
def test_pattern_that_matches_nothing_is_refused_with_the_nearest_name(pattern: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as error:
        freeze(DEFAULT.fresh(), [pattern])
    assert str(error.value) == (f"train.freeze: '{pattern}' matches the name of no weight; did you mean '{nearest}'?")


@pytest.mark.parametrize(("side", "changes"), [("decoder", {}), ("encoder", {"decoder": "none"})])
@pytest.mark.parametrize("pattern", ["head.*", "head", "head.out.weight"])
def test_tied_head_has_no_weights_to_freeze(side: str, changes: dict[str, str], pattern: str) -> None:
    model = assemble(DEFAULT.changed(**changes).config, Tokens(7), 7, "encoder" if changes else "decoder")
    with pytest.raises(ConfigError) as error:
        freeze(model, [pattern])
    assert str(error.value) == (
        f"train.freeze: '{pattern}' matches no weight: a tied head has no matrix of its own; freeze its table with "
        f"'{side}.embedding.*'"
    )
    freeze(model, [f"{side}.embedding.*"])


@pytest.mark.parametrize("pattern", ["x.*", "xyz", "?x"])
def test_pattern_that_begins_like_no_name_is_refused_without_a_guess(pattern: str) -> None:
    with pytest.raises(ConfigError) as error:
        freeze(named("head=linear").fresh(), [pattern])
    assert str(error.value) == (
        f"train.freeze: '{pattern}' matches the name of no weight; the names begin with decoder, encoder, head"
    )


def test_freezing_all_weights_is_refused_before_any_work() -> None:
    with pytest.raises(ConfigError, match=r"^train\.freeze: 'encoder\.\*', 'decoder\.\*' match all weights"):
        recipe_of({"extends": "demo", "train": {"freeze": ["encoder.*", "decoder.*"]}})
    with pytest.raises(ConfigError, match=r"^train\.freeze: 'encodr\.\*' matches"):
        recipe_of({"extends": "demo", "train": {"freeze": ["encodr.*"]}})


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize(
    "patterns", [["encoder.*"], ["*.weight"], ["*.bias", "*embedding*", "*norm*"]], ids=["encoder", "matrices", "rest"]
)
def test_frozen_weights_do_not_move_and_have_no_optimizer_state(kind: str, patterns: list[str]) -> None:
    model = perturbed(DEFAULT.fresh()).train()
    freeze(model, patterns)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = OPTIMIZERS[kind](model, weight_decay=0.1)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    for _ in range(2):
        optimizer.zero_grad()
        next_token_loss(model, small_corpus(model).batch(range(4)), TokenCost(0.1)).total.backward()
        optimizer.step()
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) != p.requires_grad, name
        assert (p in optimizer.state) == p.requires_grad, name


def test_biases_alone_can_be_trained_with_either_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first linear layer has no trained input and no trained matrix, but a trained bias."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    gradients = []
    for one_dnn in (False, True):
        monkeypatch.setattr(fast_linear, "prefers_onednn", lambda one_dnn=one_dnn: one_dnn)
        monkeypatch.setattr(fast_linear, "MIN_ONEDNN_ROWS", 1)
        monkeypatch.setattr(fast_linear, "MIN_ONEDNN_MULTIPLICATIONS", 0)
        model = perturbed(named("head=linear").fresh()).train()
        freeze(model, ["*.weight"])
        next_token_loss(model, small_corpus(model).batch(range(4)), TokenCost(0.1)).total.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad})
    assert "head.out.bias" in gradients[0]
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-5, msg=name)
