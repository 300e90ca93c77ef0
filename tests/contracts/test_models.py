"""Every model that the tables can make keeps every contract of a model."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from contracts import checks
from contracts.checks import shaken
from contracts.variants import DEFAULT, NO_DROPOUT, REFUSED, VARIANTS, D, Variant, named
from saccade.errors import ConfigError, SaccadeError
from saccade.models.assemble import DropoutRates, Model

Check = Callable[[Model], None]

# These walk every path of a model, so they are where shapes are checked; the others compare numbers on the same paths.
SHAPED: list[Check] = [checks.check_shapes, checks.check_gradients]
CHECKS: list[Check] = [
    checks.check_causal,
    checks.check_blind_to_padding,
    checks.check_blind_to_batch_order,
    checks.check_weights,
    checks.check_step_by_step,
    checks.check_capture_over_time,
    checks.check_state_matters,
    checks.check_select,
    checks.check_fused_equals_explicit,
    checks.check_nothing_to_look_at,
    checks.check_losses_are_sums,
    checks.check_inference_leaves_no_trace,
    checks.check_precision,
]

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def every(contracts: list[Check]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("check", contracts, ids=lambda check: check.__name__.removeprefix("check_"))


@every_variant
@every(SHAPED)
def test_the_model_keeps_its_contract_and_its_shapes(variant: Variant, check: Check) -> None:
    check(shaken(variant.fresh()))


@pytest.mark.usefixtures("unchecked")
@every_variant
@every(CHECKS)
def test_the_model_keeps_its_contract(variant: Variant, check: Check) -> None:
    check(shaken(variant.fresh()))


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if "coverage" in str(variant)], ids=str)
def test_what_was_looked_at_is_covered(variant: Variant) -> None:
    checks.check_coverage(shaken(variant.fresh()))


@pytest.mark.usefixtures("unchecked")
@every_variant
def test_saved_and_loaded_it_is_the_same_model(variant: Variant, tmp_path: Path) -> None:
    checks.check_save_and_load(variant.fresh, tmp_path)


SOME = [DEFAULT, named("recurrent-gru-before-False"), named("coverage-after")]


@pytest.mark.parametrize("variant", SOME, ids=str)
def test_attention_is_noted_before_dropout(variant: Variant) -> None:
    checks.check_notes_before_dropout(shaken(variant.changed(dropout=NO_DROPOUT | {"attention": 0.5}).fresh()))


@pytest.mark.parametrize("variant", SOME, ids=str)
@pytest.mark.parametrize("place", DropoutRates.model_fields)
def test_every_dropout_rate_is_used_while_training_and_only_then(variant: Variant, place: str) -> None:
    if place == "feed_forward" and variant is not DEFAULT:
        pytest.skip("a recurrent model has no feed-forward")
    checks.check_dropout_rates_are_used(lambda rates: variant.changed(dropout=NO_DROPOUT | rates).fresh(), place)


# ── what cannot be built ──────────────────────────────────────────────────────────────────────────

REFUSALS = {
    "encoder.embedding=series": ("model.encoder.embedding", "reads frames of numbers"),
    "encoder=recurrent.embedding=series": ("model.encoder.embedding", "reads frames of numbers"),
    "encoder.block.self=unprojected.coverage=True": ("model.encoder.block.self.coverage", "here there is none"),
    "decoder.block.self=unprojected.coverage=True": ("model.decoder.block.self.coverage", "here there is none"),
}


def test_only_what_cannot_be_is_refused() -> None:
    assert {str(variant) for variant in REFUSED} == set(REFUSALS)


@pytest.mark.parametrize("variant", REFUSED, ids=str)
def test_a_refusal_names_its_key(variant: Variant) -> None:
    key, reason = REFUSALS[str(variant)]
    with pytest.raises(ConfigError, match=reason) as refused:
        variant.fresh()
    assert str(refused.value).startswith(f"{key}: ")


def test_a_recurrent_decoder_without_a_source_is_left_alone_or_refuses() -> None:
    alone, looking = (named(label).fresh() for label in ("no-attention-at-start", "coverage"))
    tokens = torch.tensor([[5, 6, 7]])
    hidden, _ = alone.decoder.step(tokens, alone.decoder.start(None, 1))
    assert hidden.shape == (1, 3, D)
    with pytest.raises(SaccadeError, match=r"model\.decoder\.cross"):
        looking.decoder.start(None, 1)
