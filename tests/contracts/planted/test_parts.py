"""The checks of norms, positions, embeddings, dropout and schedules fail on planted defects."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from contracts.checks.decoding import check_incremental_decoding
from contracts.checks.dropout import check_dropout
from contracts.checks.embeddings import check_embedding
from contracts.checks.masking import check_padding_has_no_effect
from contracts.checks.models import (
    check_double_precision,
    check_dropout_rates_are_used,
    check_training_after_inference,
)
from contracts.checks.pointwise import check_feed_forward, check_pointwise
from contracts.checks.positions import check_position
from contracts.checks.randomness import check_draws_from_its_generator, check_stochastic_depth
from contracts.checks.schedules import check_schedule
from contracts.planted.defects import Check, Defect, Patch, assert_check_fails, each, on_model, patched
from contracts.variants import DEFAULT, NO_DROPOUT, B, D, T, V, named
from saccade.inputs import Tokens
from saccade.models.assemble import Model
from saccade.models.stacked import Stacked
from saccade.optim.schedules import InverseRoot
from saccade.parts import (
    Dropout,
    Hard,
    LayerNorm,
    Learned,
    PlainFeedForward,
    RecurrentNet,
    Rotary,
    Sinusoidal,
    StochasticDepth,
    TokenEmbedding,
)
from saccade.places import Places

pytestmark = pytest.mark.slow
# The original functions: the defects below call them after they are patched.
STEP, EMBED, PLACES_OF, TURN = Stacked.step, Sinusoidal.embed, Places.of, Rotary.turn
FEED_FORWARD = PlainFeedForward.forward
IDS = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(0))


def norm_over_the_batch(self: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean((0, 1))) * self.weight + self.bias


def feed_forward_that_counts_padding(self: PlainFeedForward, x: torch.Tensor, places: Places) -> torch.Tensor:
    return FEED_FORWARD(self, x, places) * places.keep.float().mean()


def sinusoid_from_position_0(self: Any, x: torch.Tensor, places: Places) -> torch.Tensor:
    return EMBED(self, x, replace(places, at=torch.arange(x.shape[1]).expand(x.shape[:2])))


def turn_from_position_0(self: Rotary, x: torch.Tensor, places: Places, role: Any) -> torch.Tensor:
    return TURN(self, x, replace(places, at=torch.arange(x.shape[2]).expand(len(x), -1)), role)


def learned_from_position_0(self: Any, x: torch.Tensor, places: Places) -> torch.Tensor:
    return x + self.table(torch.arange(x.shape[1]))


def learned_up_to_the_bound(self: Any, x: torch.Tensor, places: Places) -> torch.Tensor:
    assert places.end <= self.longest
    return x + self.table(places.at)


def embed_with_inference_table(self: Any, x: torch.Tensor, places: Places) -> torch.Tensor:
    """Grows the table in inference mode, too, and multiplies by it, so that the backward pass needs it."""
    table = self.table
    if x.shape[1] > len(table.rows):
        table.rows = torch.cat([table.rows] * 3)
    return x * table.rows[: x.shape[1]]


def step_in_single_precision(self: Any, tokens: Any, state: Any, keep: Any = None) -> Any:
    hidden, after = STEP(self, tokens, state, keep)
    return hidden.float(), after


def random_mask(self: Dropout, x: torch.Tensor) -> torch.Tensor:
    return torch.randint(256, x.shape) >= self.threshold


def dropout_in_groups_of_eight(self: Dropout, x: torch.Tensor) -> torch.Tensor:
    if not self.training or not self.threshold:
        return x
    keep = random_mask(self, x.flatten()[::8]).repeat_interleave(8)[: x.numel()].view(x.shape)
    return x * keep * (256 / (256 - self.threshold))


def dropout_in_evaluation(self: Dropout, x: torch.Tensor) -> torch.Tensor:
    return x * random_mask(self, x) * (256 / (256 - self.threshold))


def mask_of_global_generator(self: Dropout, x: torch.Tensor) -> torch.Tensor:
    return random_mask(self, x) * (256 / (256 - self.threshold))


def sample_of_global_generator(self: Hard, p: torch.Tensor) -> torch.Tensor:
    return (p + torch.rand(p.shape)).argmax(-1, keepdim=True)


def rows_dropped_without_rescaling(self: StochasticDepth, x: torch.Tensor) -> torch.Tensor:
    return x * (torch.rand(len(x), 1, 1) >= self.rate) if self.training else x


def model_with_dropout(label: str = "default") -> Model:
    return named(label).changed(dropout=dict.fromkeys(NO_DROPOUT, 0.5)).fresh()


def dropout_check() -> None:
    check_dropout(Dropout, 0.1)


def dropout_rate_check() -> None:
    check_dropout_rates_are_used(lambda rates: DEFAULT.changed(dropout=NO_DROPOUT | rates).fresh(), "attention")


STEPS = on_model(check_incremental_decoding)

DEFECTS = [
    Defect(
        "a norm over the batch",
        patched(LayerNorm, "forward", norm_over_the_batch),
        (on_model(check_padding_has_no_effect), lambda: check_pointwise(LayerNorm(D))),
    ),
    Defect(
        "a feed-forward that shares its capacity with padding",
        patched(PlainFeedForward, "forward", feed_forward_that_counts_padding),
        (lambda: check_feed_forward(PlainFeedForward(D)), on_model(check_padding_has_no_effect)),
    ),
    Defect(
        "sinusoidal positions start at 0 in every step",
        patched(Sinusoidal, "embed", sinusoid_from_position_0),
        (STEPS, lambda: check_position(lambda causal: Sinusoidal(D))),
    ),
    Defect(
        "learned positions start at 0 in every step",
        patched(Learned, "embed", learned_from_position_0),
        (lambda: check_position(lambda causal: Learned(D)),),
    ),
    Defect(
        "learned positions are limited by a row that has left the batch",
        patched(Learned, "embed", learned_up_to_the_bound),
        (lambda: check_position(lambda causal: Learned(D)),),
    ),
    Defect(
        "rotary positions start at 0 in every step",
        patched(Rotary, "turn", turn_from_position_0),
        (
            lambda: check_position(lambda causal: Rotary()),
            on_model(check_incremental_decoding, "decoder.position=rotary"),
        ),
    ),
    Defect(
        "the backward pass needs a table made in inference mode",
        patched(Sinusoidal, "embed", embed_with_inference_table),
        (on_model(check_training_after_inference),),
    ),
    Defect(
        "Places ignore the start position",
        patched(Places, "of", lambda like, keep, progress=None: PLACES_OF(like, keep)),
        (lambda: check_embedding(TokenEmbedding(Tokens(V), D), IDS, V), STEPS),
    ),
    Defect(
        "a decoder that returns single precision",
        patched(Stacked, "step", step_in_single_precision),
        (on_model(check_double_precision),),
    ),
    Defect(
        "dropout without rescaling",
        patched(Dropout, "forward", lambda self, x: x * random_mask(self, x) if self.training else x),
        (dropout_check,),
    ),
    Defect(
        "dropout rescaled by the rate before rounding",
        patched(Dropout, "forward", lambda self, x: x * random_mask(self, x) / 0.9 if self.training else x),
        (dropout_check,),
    ),
    Defect("dropout in evaluation mode", patched(Dropout, "forward", dropout_in_evaluation), (dropout_check,)),
    Defect(
        "dropout of eight neighboring values at once",
        patched(Dropout, "forward", dropout_in_groups_of_eight),
        (dropout_check,),
    ),
    Defect(
        "dropout that draws from torch's global generator",
        patched(Dropout, "_mask", mask_of_global_generator),
        (lambda: check_draws_from_its_generator(model_with_dropout()),),
    ),
    Defect(
        "hard attention that draws from torch's global generator",
        patched(Hard, "sample", sample_of_global_generator),
        (lambda: check_draws_from_its_generator(named("hard-additive").fresh()),),
    ),
    Defect(
        "dropout between the layers of a recurrent net that draws from torch's global generator",
        patched(RecurrentNet, "_layer_by_layer", lambda self, x, state: self.net(x, state)),
        (lambda: check_draws_from_its_generator(model_with_dropout("recurrent-gru-before")),),
    ),
    Defect(
        "stochastic depth that drops values instead of rows",
        patched(StochasticDepth, "forward", lambda self, x: F.dropout(x, self.rate, self.training)),
        (lambda: check_stochastic_depth(StochasticDepth, 0.3),),
    ),
    Defect(
        "stochastic depth without rescaling",
        patched(StochasticDepth, "forward", rows_dropped_without_rescaling),
        (lambda: check_stochastic_depth(StochasticDepth, 0.3),),
    ),
    Defect(
        "a dropout rate of the config has no effect",
        patched(Dropout, "forward", lambda self, x: x),
        (dropout_rate_check, dropout_check),
    ),
    Defect(
        "a schedule without warmup",
        patched(InverseRoot, "__call__", lambda self, step: self.rate * min(1.0, math.sqrt(self.warmup / step))),
        (lambda: check_schedule(InverseRoot(rate=0.003, warmup=10), 0.003, 10, 100),),
    ),
]


@each(DEFECTS)
def test_contract_fails_on_planted_defect(defect: Defect, check: Check, monkeypatch: Patch) -> None:
    assert_check_fails(defect, check, monkeypatch)
