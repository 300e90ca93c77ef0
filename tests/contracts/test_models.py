"""Every model that the tables can build satisfies every contract of a model."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from contracts.checks.attention import (
    check_attention_weights,
    check_capture_across_steps,
    check_coverage,
    check_fused_attention,
    check_notes_before_dropout,
)
from contracts.checks.common import assert_close, padding_mask, perturbed
from contracts.checks.decoding import (
    check_incremental_decoding,
    check_prompts_of_unequal_length,
    check_select,
    check_whole_state_is_used,
)
from contracts.checks.fused import check_fused_model
from contracts.checks.losses import check_losses_are_sums
from contracts.checks.masking import (
    check_batch_order_has_no_effect,
    check_causal_mask,
    check_fully_padded_source,
    check_padding_has_no_effect,
)
from contracts.checks.models import (
    check_adoption,
    check_double_precision,
    check_dropout_rates_are_used,
    check_frozen_weights,
    check_gradients_reach_all_weights,
    check_save_and_load,
    check_shapes,
    check_training_after_inference,
)
from contracts.checks.running import keep_layers
from contracts.toy_parts import ToyLayerMean
from contracts.variants import DEFAULT, INVALID, NO_DROPOUT, VARIANTS, Variant, named
from saccade.decode.fused import FusedEncoder
from saccade.errors import ConfigError
from saccade.inputs import Tokens
from saccade.models.assemble import Model, Reads, assemble
from saccade.models.blocks import DropoutRates
from saccade.parts import MIXERS

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
    check_fused_model,
    check_fully_padded_source,
    check_losses_are_sums,
    check_frozen_weights,
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
    "decoder-only",
    "decoder-only-rotary",
    "decoder-only-recurrent",
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


@pytest.mark.usefixtures("without_shape_checks")
@every_variant
def test_model_adopts_all_weights_of_the_same_config(variant: Variant, tmp_path: Path) -> None:
    check_adoption(variant.fresh, tmp_path)


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


@pytest.mark.parametrize("cross", ["unprojected", "every_step"])
def test_recurrent_decoder_that_reads_a_source_needs_an_encoder(cross: str) -> None:
    variant = named("decoder-only-recurrent")
    with pytest.raises(ConfigError, match=r"^model\.decoder\.cross: reads the encoder, but there is none"):
        variant.changed(decoder=variant.tree["decoder"] | {"cross": cross}).fresh()


def test_layers_of_memory_begin_with_the_input_and_end_before_the_final_norm() -> None:
    model = perturbed(DEFAULT.fresh()).eval()
    keep_layers(model)
    ids = torch.tensor([[5, 6, 7]])
    memory = model.encode(ids, None)
    x, places = model.encoder.embedding(ids, None)
    assert torch.equal(memory.layers[0], model.encoder.position.embed(x, places))
    assert torch.equal(model.encoder.final_norm(memory.layers[-1]), memory.states)
    first, _ = model.encoder.layers[0](memory.layers[0], places, model.encoder.layers[0].start(None, 1))
    assert torch.equal(memory.layers[1], first)


@pytest.mark.parametrize("label", ["default", "encoder=recurrent", "decoder=recurrent"])
def test_memory_has_no_layers_where_nothing_reads_them(label: str) -> None:
    model = named(label).fresh().eval()
    assert not model.encode(torch.tensor([[5, 6, 7]]), None).layers


LAYER_READERS = [check_shapes, check_gradients_reach_all_weights, check_incremental_decoding, check_select]


@pytest.mark.parametrize("encoder", ["stacked", "recurrent"])
@pytest.mark.parametrize("check", LAYER_READERS)
def test_part_that_reads_the_layers_of_the_encoder_gets_them(
    check: Check, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(perturbed(reading_layers(monkeypatch, encoder)))


@torch.inference_mode()
def test_fused_encoder_keeps_the_layers_for_a_part_that_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model = perturbed(reading_layers(monkeypatch, "stacked")).eval()
    ids, keep = torch.tensor([[5, 6, 7], [7, 8, 0]]), padding_mask((3, 2))
    expected, actual = model.encode(ids, keep).layers, FusedEncoder(model)(ids, keep).layers
    for layer, other in zip(expected, actual, strict=True):
        assert_close(other[keep], layer[keep], "a layer")
    assert not FusedEncoder(DEFAULT.fresh().eval())(ids, keep).layers


def reading_layers(monkeypatch: pytest.MonkeyPatch, encoder: str) -> Model:
    """A model whose cross-attention reads the mean of all layers of the encoder."""
    monkeypatch.setitem(MIXERS, "layer_mean", ToyLayerMean)
    block = DEFAULT.tree["decoder"]["block"] | {"cross": {"kind": "layer_mean", "heads": 2}}
    encoders = {"stacked": DEFAULT.tree["encoder"], "recurrent": {"kind": "recurrent"}}
    return DEFAULT.changed(encoder=encoders[encoder], decoder=DEFAULT.tree["decoder"] | {"block": block}).fresh()


@pytest.mark.parametrize(
    ("changes", "reads", "error"),
    [
        ({"decoder": "none"}, "decoder", "model.decoder: the task generates text and needs a decoder"),
        ({"encoder": "none", "decoder": "none"}, "encoder", "model.encoder: the task predicts labels from an encoder"),
        ({}, "summary", "model.decoder: has no effect, because the task predicts labels"),
    ],
)
def test_task_decides_which_sides_a_model_has(changes: dict[str, Any], reads: Reads, error: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(error)}"):
        assemble(DEFAULT.changed(head="linear", **changes).config, Tokens(13), 13, reads)
