"""Every model that the tables can make keeps every contract of a model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from contracts import checks
from contracts.checks import shaken
from contracts.variants import DEFAULT, NO_DROPOUT, VARIANTS, Variant
from saccade.models.assemble import DropoutRates, Model

CHECKS: list[Callable[[Model], None]] = [
    checks.check_shapes,
    checks.check_gradients,
    checks.check_causal,
    checks.check_blind_to_padding,
    checks.check_blind_to_batch_order,
    checks.check_weights,
    checks.check_step_by_step,
    checks.check_fused_equals_explicit,
    checks.check_nothing_to_look_at,
    checks.check_select,
    checks.check_losses_are_sums,
    checks.check_inference_leaves_no_trace,
    checks.check_precision,
]

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


@every_variant
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_the_model_keeps_its_contract(variant: Variant, check: Callable[[Model], None]) -> None:
    check(shaken(variant.fresh()))


def test_maps_heard_step_by_step_are_those_of_one_long_step() -> None:
    checks.check_capture_over_time(shaken(DEFAULT.fresh()))


@every_variant
def test_saved_and_loaded_it_is_the_same_model(variant: Variant, tmp_path: Path) -> None:
    checks.check_save_and_load(variant.fresh, tmp_path)


def test_attention_is_noted_before_dropout() -> None:
    checks.check_notes_before_dropout(shaken(DEFAULT.changed(dropout=NO_DROPOUT | {"attention": 0.5}).fresh()))


@pytest.mark.parametrize("place", DropoutRates.model_fields)
def test_every_dropout_rate_is_used_while_training_and_only_then(place: str) -> None:
    checks.check_dropout_rates_are_used(lambda rates: DEFAULT.changed(dropout=NO_DROPOUT | rates).fresh(), place)
