"""The check of fused forms fails on planted defects."""

from typing import Any

import pytest
import torch

from contracts.checks.fused import check_fused_model
from contracts.planted.defects import Check, Defect, Patch, assert_check_fails, each, on_model, patched
from saccade.decode import fused
from saccade.decode.fused import FusedDecoder, FusedState
from saccade.parts.feed_forwards import Gate
from saccade.parts.mixers import MultiHead
from saccade.parts.mixers.projections import AttentionProjections
from saccade.parts.norms import FusedNorm

pytestmark = pytest.mark.slow
# the original functions: the defects below call them after they are patched
INIT, STEP, PROJECTIONS = FusedNorm.__init__, FusedDecoder.step, MultiHead.fused


def norm_without_eps(self: FusedNorm, gain: Any, bias: Any, eps: float, centered: bool) -> None:
    INIT(self, gain, bias, 1e-12, centered)


def gate_of_the_other_half(self: Gate, x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return gate * self.activation(up)


def step_with_a_stale_position(self: FusedDecoder, tokens: Any, state: FusedState) -> Any:
    log_probs, after = STEP(self, tokens, state)
    return log_probs, {**after, "at": state["at"]}


def unturned(projections: AttentionProjections, query: Any, key: Any, value: Any, places: Any) -> Any:
    assert projections.score is not None
    return projections.score.query(query), projections.score.key(key), value


def projections_without_scale(self: MultiHead) -> AttentionProjections | None:
    projections = PROJECTIONS(self)
    if projections:
        query, rest = projections.qkv_weight.tensor_split([self.query.out_features])
        projections.qkv_weight = torch.cat([3 * query, rest])
    return projections


DEFECTS = [
    Defect(
        "a fused norm that ignores eps",
        patched(FusedNorm, "__init__", norm_without_eps),
        (on_model(check_fused_model, "exceptions-gated-rms"),),
    ),
    Defect(
        "a fused feed-forward with the wrong gate",
        patched(Gate, "__call__", gate_of_the_other_half),
        tuple(on_model(check_fused_model, f"{side}.block.feed_forward=gated") for side in ("encoder", "decoder")),
    ),
    Defect(
        "fused attention that does not turn queries and keys",
        patched(fused, "turned", unturned),
        tuple(on_model(check_fused_model, f"{side}.position=rotary") for side in ("encoder", "decoder")),
    ),
    Defect(
        "fused attention with another scale of the scores",
        patched(MultiHead, "fused", projections_without_scale),
        (on_model(check_fused_model),),
    ),
    Defect(
        "a fused step that does not advance the position",
        patched(FusedDecoder, "step", step_with_a_stale_position),
        (on_model(check_fused_model), on_model(check_fused_model, "decoder.position=t5")),
    ),
]


@each(DEFECTS)
def test_check_fails_on_planted_defect(defect: Defect, check: Check, monkeypatch: Patch) -> None:
    assert_check_fails(defect, check, monkeypatch)
