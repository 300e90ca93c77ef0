"""The checks of attention, masks, positions in a cache and captured weights fail on planted defects."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from contracts.checks.attention import (
    check_attention_weights,
    check_capture_across_steps,
    check_coverage,
    check_fused_attention,
    check_notes_before_dropout,
)
from contracts.checks.common import perturbed
from contracts.checks.decoding import check_incremental_decoding, check_prompts_of_unequal_length
from contracts.checks.masking import (
    check_batch_order_has_no_effect,
    check_causal_mask,
    check_fully_padded_source,
    check_padding_has_no_effect,
)
from contracts.checks.mixers import check_mixer
from contracts.checks.models import check_gradients_reach_all_weights
from contracts.checks.normalizers import check_normalizer
from contracts.checks.positions import check_position
from contracts.checks.scores import check_score
from contracts.planted.defects import Check, Defect, Patch, assert_check_fails, each, on_model, patched
from contracts.variants import NO_DROPOUT, D, named
from saccade.models.stacked import Stacked
from saccade.notes import Notes, RecordingModule
from saccade.parts import MultiHead, ScaledDot, Softmax
from saccade.parts.mixers import attend
from saccade.parts.normalizers import masked_scores
from saccade.parts.positions import T5Bias
from saccade.places import Places, Progress, attention_mask

pytestmark = pytest.mark.slow
# The original functions: the defects below call them after they are patched.
EXTENDED, STEP, KEYS = Places.extended, Stacked.step, MultiHead._keys_and_values
NOTE, RECORD, FUSED_ATTENTION = RecordingModule.note, Notes.record, attend._fused


def fused_attention(
    mask_of: Callable[..., Any], is_causal: Callable[..., bool], **options: Any
) -> Callable[..., torch.Tensor]:
    """`attend._fused` with another mask, and another condition for the kernel's own causal mask."""

    def fused(part: Any, query: Any, key: Any, value: Any, queries: Any, keys: Any, bias: Any) -> torch.Tensor:
        causal = is_causal(part, query, queries, keys)
        mask = None if causal else mask_of(part, queries, keys)
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, **options)

    return fused


def correct_mask(part: Any, queries: Places, keys: Places) -> Any:
    return attention_mask(queries, keys, part.causal)


def correct_is_causal(part: Any, query: torch.Tensor, queries: Places, keys: Places) -> bool:
    return part.causal and keys is queries and query.shape[2] > 1


def shifted_positions(self: Places, more: Places) -> Places:
    return EXTENDED(replace(self, at=self.at + 1), more)


def contiguous_positions(self: Places, more: Places) -> Places:
    places = EXTENDED(self, more)
    return replace(places, at=torch.arange(places.at.shape[1]).expand_as(places.at))


def cache_without_padding_mask(self: Places, more: Places) -> Places:
    return replace(EXTENDED(self, more), padded=False)


def progress_by_columns(self: Progress, places: Places) -> Progress:
    return Progress(self.at + places.at.shape[1], places.end)


def fused_without_bias(part: Any, query: Any, key: Any, value: Any, queries: Any, keys: Any, bias: Any) -> torch.Tensor:
    return FUSED_ATTENTION(part, query, key, value, queries, keys, None)


def step_without_advancing(self: Any, tokens: Any, state: Any, keep: Any = None) -> Any:
    hidden, after = STEP(self, tokens, state, keep)
    return hidden, after | {"progress": state["progress"]}


def keys_without_gradient(self: Any, x: torch.Tensor, places: Places) -> Any:
    key, value = KEYS(self, x, places)
    return key.detach(), value


def mask_of_first_row(queries: Places, keys: Places, causal: bool) -> Any:
    mask = attention_mask(queries, keys, causal)
    return mask if mask is None else mask[:1]


def note_half(self: RecordingModule, kind: str, value: torch.Tensor, queries: Places) -> None:
    NOTE(self, kind, 0.5 * value, queries)


def softmax_with_added_mask(self: Softmax, scores: torch.Tensor, keep: Any, queries: Any = None) -> torch.Tensor:
    """The same weights, but the NaN of a fully masked row reaches the scores in the backward pass."""
    if keep is None:
        return scores.softmax(-1)
    masked = torch.zeros_like(scores).masked_fill(~keep, -math.inf)
    return (scores + masked).softmax(-1).masked_fill(~keep, 0.0)


def attend_noting_after_dropout(part: Any, query: Any, key: Any, value: Any, queries: Any, keys: Any) -> torch.Tensor:
    weights = part.dropout(part.normalizer(part.score.join(query, key), attention_mask(queries, keys, part.causal)))
    part.note("weights", weights, queries)
    return weights @ value


def record_first_step(self: Notes, name: str, value: torch.Tensor, queries: Places) -> None:
    if name not in self._passes:
        RECORD(self, name, value, queries)


def notes_with_dropout(label: str) -> Check:
    variant = named(label).changed(dropout=NO_DROPOUT | {"attention": 0.5})
    return lambda: check_notes_before_dropout(perturbed(variant.fresh()))


def normalizer_check() -> None:
    check_normalizer(Softmax())


def mixer_check() -> None:
    check_mixer(lambda causal: MultiHead(D, causal, heads=2))


def score_check() -> None:
    check_score(ScaledDot(11), Softmax())


STEPS, CAUSAL = on_model(check_incremental_decoding), on_model(check_causal_mask)
PADDING, WEIGHTS = on_model(check_padding_has_no_effect), on_model(check_attention_weights)
ORDER, ALL_PADDING = on_model(check_batch_order_has_no_effect), on_model(check_fully_padded_source)
FUSED, PROMPTS = on_model(check_fused_attention), on_model(check_prompts_of_unequal_length)

DEFECTS = [
    Defect(
        "no causal mask",
        patched(attend, "attention_mask", lambda queries, keys, causal: attention_mask(queries, keys, False)),
        (CAUSAL, STEPS, WEIGHTS),
    ),
    Defect(
        "fused attention over the whole target without a causal mask",
        patched(
            attend,
            "_fused",
            fused_attention(lambda part, q, k: attention_mask(q, k, False), lambda *_: False, scale=1.0),
        ),
        (CAUSAL, STEPS),
    ),
    Defect(
        "is_causal with a cache",
        patched(
            attend,
            "_fused",
            fused_attention(correct_mask, lambda self, q, *_: self.causal and q.shape[2] > 1, scale=1.0),
        ),
        (STEPS,),
    ),
    Defect("wrong positions of the entries in a cache", patched(Places, "extended", shifted_positions), (STEPS,)),
    Defect(
        "entries of a cache have no positions of their own",
        patched(Places, "extended", contiguous_positions),
        (on_model(check_prompts_of_unequal_length, "decoder.position=t5"),),
    ),
    Defect("a cache without padding mask", patched(Places, "extended", cache_without_padding_mask), (PROMPTS,)),
    Defect("padding counts as tokens of a prompt", patched(Progress, "after", progress_by_columns), (PROMPTS,)),
    Defect(
        "fused attention without the bias of the position",
        patched(attend, "_fused", fused_without_bias),
        (
            lambda: check_position(lambda causal: T5Bias(D, causal)),
            on_model(check_fused_attention, "decoder.position=t5"),
        ),
    ),
    Defect("the position in the state does not advance", patched(Stacked, "step", step_without_advancing), (STEPS,)),
    Defect(
        "fused attention without a padding mask",
        patched(attend, "_fused", fused_attention(lambda *_: None, correct_is_causal, scale=1.0)),
        (PADDING, FUSED),
    ),
    Defect(
        "explicit attention without a padding mask",
        patched(attend, "attention_mask", lambda q, k, causal: attention_mask(q, replace(k, padded=False), causal)),
        (PADDING, WEIGHTS, ALL_PADDING),
    ),
    Defect(
        "masked keys with a small weight",
        patched(
            Softmax,
            "forward",
            lambda self, s, keep, queries=None: s.softmax(-1) if keep is None else (s - 9.0 * ~keep).softmax(-1),
        ),
        (WEIGHTS, PADDING, normalizer_check),
    ),
    Defect(
        "softmax of a fully masked row is NaN",
        patched(Softmax, "forward", lambda self, scores, keep, queries=None: masked_scores(scores, keep).softmax(-1)),
        (ALL_PADDING, normalizer_check, mixer_check),
    ),
    Defect(
        "the gradient of a fully masked row is NaN",
        patched(Softmax, "forward", softmax_with_added_mask),
        (ALL_PADDING, normalizer_check),
    ),
    Defect("notes with half of the weights", patched(RecordingModule, "note", note_half), (WEIGHTS,)),
    Defect(
        "the fused kernel scales a second time",
        patched(attend, "_fused", fused_attention(correct_mask, correct_is_causal)),
        (FUSED,),
    ),
    Defect(
        "a score that claims to be a dot product and is not",
        patched(ScaledDot, "join", lambda self, q, k: q @ k.transpose(-1, -2) / 2),
        (score_check, FUSED),
    ),
    Defect(
        "the mask of the first row for all rows", patched(attend, "attention_mask", mask_of_first_row), (ORDER, PADDING)
    ),
    Defect(
        "keys without a gradient",
        patched(MultiHead, "_keys_and_values", keys_without_gradient),
        (on_model(check_gradients_reach_all_weights),),
    ),
    Defect(
        "notes taken after dropout",
        patched(attend, "attend", attend_noting_after_dropout),
        (notes_with_dropout("default"),),
    ),
    Defect(
        "notes of the first step only",
        patched(Notes, "record", record_first_step),
        (on_model(check_capture_across_steps), on_model(check_coverage, "coverage")),
    ),
]


@each(DEFECTS)
def test_contract_fails_on_planted_defect(defect: Defect, check: Check, monkeypatch: Patch) -> None:
    assert_check_fails(defect, check, monkeypatch)
