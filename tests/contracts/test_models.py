"""Every model that the tables can build satisfies every contract of a model."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from contracts.checks.attention import (
    check_attention_weights,
    check_capture_across_steps,
    check_coverage,
    check_fused_attention,
    check_notes_before_dropout,
)
from contracts.checks.common import perturbed
from contracts.checks.decoding import (
    check_incremental_decoding,
    check_prompts_of_unequal_length,
    check_select,
    check_whole_state_is_used,
)
from contracts.checks.losses import check_losses_are_sums
from contracts.checks.masking import (
    check_batch_order_has_no_effect,
    check_causal_mask,
    check_fully_padded_source,
    check_padding_has_no_effect,
)
from contracts.checks.models import (
    check_double_precision,
    check_dropout_rates_are_used,
    check_gradients_reach_all_weights,
    check_save_and_load,
    check_shapes,
    check_training_after_inference,
)
from contracts.variants import DEFAULT, INVALID, NO_DROPOUT, VARIANTS, D, Variant, named
from saccade.errors import ConfigError, SaccadeError
from saccade.models.assemble import Model
from saccade.models.blocks import DropoutRates

Check = Callable[[Model], None]

# These run every code path of a model, with shape checks; the others run the same paths without them.
SHAPE_CHECKS: list[Check] = [check_shapes, check_gradients_reach_all_weights]
VALUE_CHECKS: list[Check] = [
    check_causal_mask,
    check_padding_has_no_effect,
    check_batch_order_has_no_effect,
    check_attention_weights,
    check_incremental_decoding,
    check_capture_across_steps,
    check_prompts_of_unequal_length,
    check_whole_state_is_used,
    check_select,
    check_fused_attention,
    check_fully_padded_source,
    check_losses_are_sums,
    check_training_after_inference,
    check_double_precision,
]

# The variants of `make quick`: one for each kind of encoder, decoder, attention and decoder state.
QUICK = {
    "default",
    "encoder=recurrent",
    "decoder=recurrent",
    "coverage",
    "hard-additive",
    "no-attention-every-step",
    "recurrent-lstm-after-fed",
    "mixture-0",
}
every_variant = pytest.mark.parametrize(
    "variant",
    [pytest.param(v, marks=() if str(v) in QUICK else pytest.mark.slow, id=str(v)) for v in VARIANTS],
)


def each(checks: list[Check]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__.removeprefix("check_"))


@every_variant
@each(SHAPE_CHECKS)
def test_model_satisfies_contract_with_shape_checks(variant: Variant, check: Check) -> None:
    check(perturbed(variant.fresh()))


@pytest.mark.usefixtures("without_shape_checks")
@every_variant
@each(VALUE_CHECKS)
def test_model_satisfies_contract(variant: Variant, check: Check) -> None:
    check(perturbed(variant.fresh()))


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if "coverage" in str(variant)], ids=str)
def test_coverage_is_sum_of_attention_weights(variant: Variant) -> None:
    check_coverage(perturbed(variant.fresh()))


@pytest.mark.usefixtures("without_shape_checks")
@every_variant
def test_loaded_model_equals_saved_model(variant: Variant, tmp_path: Path) -> None:
    check_save_and_load(variant.fresh, tmp_path)


SELECTED = [DEFAULT, named("recurrent-gru-before"), named("coverage-after")]


@pytest.mark.parametrize("variant", SELECTED, ids=str)
def test_attention_is_noted_before_dropout(variant: Variant) -> None:
    check_notes_before_dropout(perturbed(variant.changed(dropout=NO_DROPOUT | {"attention": 0.5}).fresh()))


@pytest.mark.parametrize("variant", SELECTED, ids=str)
@pytest.mark.parametrize("key", DropoutRates.model_fields)
def test_each_dropout_rate_is_used_in_training_only(variant: Variant, key: str) -> None:
    if key == "feed_forward" and variant is not DEFAULT:
        pytest.skip("a recurrent model has no feed-forward")
    check_dropout_rates_are_used(lambda rates: variant.changed(dropout=NO_DROPOUT | rates).fresh(), key)


# ── models that cannot be built ───────────────────────────────────────────────────────────────────

ERRORS = {
    "encoder.embedding=series": ("model.encoder.embedding", "is for numeric series"),
    "encoder=recurrent.embedding=series": ("model.encoder.embedding", "is for numeric series"),
    "encoder.block.self=unprojected.coverage=True": (
        "model.encoder.block.self.coverage",
        "is only for cross-attention",
    ),
    "decoder.block.self=unprojected.coverage=True": (
        "model.decoder.block.self.coverage",
        "is only for cross-attention",
    ),
}


def test_only_known_variants_are_invalid() -> None:
    assert {str(variant) for variant in INVALID} == set(ERRORS)


@pytest.mark.parametrize("variant", INVALID, ids=str)
def test_error_of_invalid_model_names_config_key(variant: Variant) -> None:
    key, reason = ERRORS[str(variant)]
    with pytest.raises(ConfigError, match=reason) as raised:
        variant.fresh()
    assert str(raised.value).startswith(f"{key}: ")


def test_recurrent_decoder_without_source_raises_only_if_it_attends() -> None:
    without_attention, with_attention = (named(label).fresh() for label in ("no-attention-at-start", "coverage"))
    tokens = torch.tensor([[5, 6, 7]])
    hidden, _ = without_attention.decoder.step(tokens, without_attention.decoder.start(None, 1))
    assert hidden.shape == (1, 3, D)
    with pytest.raises(SaccadeError, match=r"model\.decoder\.cross"):
        with_attention.decoder.start(None, 1)
