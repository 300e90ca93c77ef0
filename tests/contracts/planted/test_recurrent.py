"""The checks of recurrent models, coverage, hard attention and pools fail on planted defects."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from contracts.checks import decoding
from contracts.checks.attention import check_attention_weights, check_coverage
from contracts.checks.cells import check_cell
from contracts.checks.common import perturbed
from contracts.checks.contexts import check_context
from contracts.checks.decoding import check_incremental_decoding, check_select, check_whole_state_is_used
from contracts.checks.losses import check_losses_are_sums
from contracts.checks.masking import check_causal_mask, check_padding_has_no_effect
from contracts.checks.models import check_gradients_reach_all_weights
from contracts.checks.normalizers import check_normalizer, check_policy_loss
from contracts.checks.pools import check_pool, check_pool_values
from contracts.checks.readouts import check_readout
from contracts.checks.scores import check_score
from contracts.planted.defects import Check, Defect, Patch, assert_check_fails, each, on_model, patched
from contracts.variants import D
from saccade.models.recurrent import RecurrentDecoder
from saccade.notes import Notes
from saccade.parts import (
    Additive,
    Deep,
    EveryStep,
    Hard,
    Last,
    Mean,
    RecurrentNet,
    Softmax,
    Sparsemax,
    Unprojected,
    gru,
    lstm,
)
from saccade.places import Places, select

pytestmark = pytest.mark.slow
# The original functions: the defects below call them after they are patched.
WHOLE, INITIAL_STATE, CELL_STEP = RecurrentNet.whole, RecurrentNet.initial_state, RecurrentNet.step
DECODER_STEPS, GATES, DEEP = RecurrentDecoder._step_by_step, RecurrentDecoder._gates, Deep.forward
COVERAGE_STEPS, COVERAGE_SCORES, JOIN = Unprojected._step_by_step, Unprojected._attend_with_coverage, Additive.join
HARD, POLICY_LOSS, SPARSEMAX, MASKS = Hard.forward, Hard.policy_loss, Sparsemax.forward, Notes.masks


def whole_without_packing(self: RecurrentNet, x: Any, places: Places, state: Any = None) -> Any:
    return WHOLE(self, x, replace(places, padded=False), state)


def reversed_initial_state(self: RecurrentNet, start: torch.Tensor) -> Any:
    return tuple(tuple(reversed(layer)) for layer in INITIAL_STATE(self, start))


def output_of_first_layer(self: RecurrentNet, given: Any, state: Any) -> Any:
    after = CELL_STEP(self, given, state)[1]
    return after[0][0], after


def select_without_cell(state: Any, rows: Any, sentences: Any = None) -> Any:
    selected = select(state, rows, sentences)
    return selected | {"cell": select(state["cell"], torch.arange(len(rows)) % len(state["progress"].at))}


def select_without_coverage(state: Any, rows: Any, sentences: Any = None) -> Any:
    selected = select(state, rows, sentences)
    coverage = state["memory"].so_far[torch.arange(len(rows)) % len(state["progress"].at)]
    return selected | {"memory": replace(selected["memory"], so_far=coverage)}


def input_feeding_within_a_call_only(self: Any, x: Any, places: Any, state: Any) -> Any:
    hidden, after = DECODER_STEPS(self, x, places, state)
    return hidden, after | {"fed": torch.zeros_like(after["fed"])}


def gates_without_input_feeding(self: Any, given: Any, context: Any, fed: Any) -> Any:
    return GATES(self, given, context, None if fed is None else torch.zeros_like(fed))


def scores_without_coverage(self: Unprojected, query: Any, memory: Any, here: Any, so_far: Any) -> Any:
    return COVERAGE_SCORES(self, query, memory, here, torch.zeros_like(so_far))


def coverage_of_last_call(self: Unprojected, x: Any, places: Any, state: Any) -> Any:
    y, after = COVERAGE_STEPS(self, x, places, state)
    return y, replace(after, so_far=after.so_far - state.so_far)


def coverage_by_padding(self: Unprojected, x: Any, places: Any, state: Any) -> Any:
    return COVERAGE_STEPS(self, x, replace(places, keep=torch.ones_like(places.keep)), state)


def readout_of_next_context(self: Deep, state: Any, context: Any, token: Any) -> Any:
    return DEEP(self, state, context.roll(1, 1), token)


def summary_in_wrong_order(self: Any, x: Any, places: Any, state: Any) -> Any:
    """Repeats the summaries as 0 1 2 0 1 2; the hypotheses of a sentence are next to each other: 0 0 1 1 2 2."""
    summary = state.value
    repeated = summary.repeat(x.shape[0] // len(summary), 1)
    return repeated[:, None].expand(-1, x.shape[1], -1), state


def sampling_in_evaluation(self: Hard, scores: Any, keep: Any, queries: Any = None) -> Any:
    training, self.training = self.training, True
    try:
        return HARD(self, scores, keep, queries)
    finally:
        self.training = training


def baseline_updated_first(self: Hard, sampled: Any, cost: Any, count: Any, keep: Any) -> Any:
    self._update_baseline(cost[keep], count[keep])
    return POLICY_LOSS(self, sampled, cost, count, keep)


def loss_of_first_head(self: Hard, sampled: Any, cost: Any, count: Any, keep: Any) -> Any:
    return POLICY_LOSS(self, sampled[:, :1], cost, count, keep)


def negative_policy_loss(self: Hard, sampled: Any, cost: Any, count: Any, keep: Any) -> Any:
    return -POLICY_LOSS(self, sampled, cost, count, keep)


def sparsemax_below_one(self: Sparsemax, scores: Any, keep: Any, queries: Any = None) -> Any:
    return (SPARSEMAX(self, scores, keep, queries) - 0.01).clamp(min=0)


def all_positions_real(self: Notes) -> dict[str, torch.Tensor]:
    return {name: torch.ones_like(keep) for name, keep in MASKS(self).items()}


def mean_with_padding(self: Mean, states: torch.Tensor, places: Places) -> torch.Tensor:
    return states.mean(1)


def last_index(self: Last, states: torch.Tensor, places: Places) -> torch.Tensor:
    return states[:, -1]


def last_token_in_both_directions(self: Last, states: torch.Tensor, places: Places) -> torch.Tensor:
    """Wrong for the backward columns: at the last token they have read one token."""
    last = (places.keep.sum(1) - 1).clamp(min=0)
    return states[torch.arange(len(states)), last] * places.keep[:, :1]


def cell_check() -> None:
    check_cell(lstm, 2, False)


def bidirectional_cell_check() -> None:
    check_cell(gru, 2, True)


def additive_check() -> None:
    check_score(perturbed(Additive(2, 11)), Softmax())


def policy_loss_check() -> None:
    check_policy_loss(Hard())


FED, COVERAGE, HARD_ATTENTION = "recurrent-lstm-after-fed", "coverage", "hard-additive"
COVERAGE_CHECKS = (on_model(check_coverage, COVERAGE), on_model(check_coverage, "coverage-after"))

DEFECTS = [
    Defect(
        "padding on the left is not refused",
        patched(Places, "padded_on_the_right", True),
        (
            cell_check,
            on_model(decoding.check_prompts_of_unequal_length, "decoder-only-recurrent"),
            on_model(decoding.check_prompts_of_unequal_length, "decoder-only-fed"),
        ),
    ),
    Defect(
        "an encoder without packed sequences",
        patched(RecurrentNet, "whole", whole_without_packing),
        (on_model(check_padding_has_no_effect, "encoder=recurrent"), bidirectional_cell_check),
    ),
    Defect("a reversed initial state", patched(RecurrentNet, "initial_state", reversed_initial_state), (cell_check,)),
    Defect(
        "a step that returns the first layer",
        patched(RecurrentNet, "step", output_of_first_layer),
        (cell_check, on_model(check_incremental_decoding, "recurrent-gru-after")),
    ),
    Defect(
        "select leaves out the cell's state",
        patched(decoding, "select", select_without_cell),
        (on_model(check_select, FED),),
    ),
    Defect(
        "select leaves out the coverage",
        patched(decoding, "select", select_without_coverage),
        (on_model(check_select, COVERAGE),),
    ),
    Defect(
        "input feeding is reset between calls",
        patched(RecurrentDecoder, "_step_by_step", input_feeding_within_a_call_only),
        (on_model(check_incremental_decoding, FED), on_model(check_select, FED)),
    ),
    Defect(
        "input feeding has no effect",
        patched(RecurrentDecoder, "_gates", gates_without_input_feeding),
        (on_model(check_whole_state_is_used, FED),),
    ),
    Defect(
        "coverage of the last call only",
        patched(Unprojected, "_step_by_step", coverage_of_last_call),
        COVERAGE_CHECKS,
    ),
    Defect(
        "padding queries add to the coverage",
        patched(Unprojected, "_step_by_step", coverage_by_padding),
        COVERAGE_CHECKS,
    ),
    Defect(
        "the score ignores the coverage",
        patched(Unprojected, "_attend_with_coverage", scores_without_coverage),
        (on_model(check_whole_state_is_used, COVERAGE),),
    ),
    Defect(
        "the readout gets the context of another step",
        patched(Deep, "forward", readout_of_next_context),
        (
            on_model(check_incremental_decoding, "recurrent-gru-before"),
            on_model(check_causal_mask, "recurrent-gru-after"),
            lambda: check_readout(lambda context: Deep(D, context)),
        ),
    ),
    Defect(
        "hypotheses get the summary of another sentence",
        patched(EveryStep, "forward", summary_in_wrong_order),
        (on_model(check_select, "no-attention-every-step"), lambda: check_context(EveryStep(D))),
    ),
    Defect(
        "hard attention samples in evaluation mode",
        patched(Hard, "forward", sampling_in_evaluation),
        (lambda: check_normalizer(Hard()), on_model(check_incremental_decoding, HARD_ATTENTION)),
    ),
    Defect(
        "the baseline is updated before the loss",
        patched(Hard, "policy_loss", baseline_updated_first),
        (policy_loss_check,),
    ),
    Defect("a policy loss of one head only", patched(Hard, "policy_loss", loss_of_first_head), (policy_loss_check,)),
    Defect(
        "a policy loss with the wrong sign", patched(Hard, "policy_loss", negative_policy_loss), (policy_loss_check,)
    ),
    Defect(
        "padding in the policy loss",
        patched(Notes, "masks", all_positions_real),
        (
            on_model(check_losses_are_sums, HARD_ATTENTION),
            on_model(check_losses_are_sums, "encoder.block.self.normalizer=hard"),
        ),
    ),
    Defect(
        "padding in the coverage loss",
        patched(Notes, "masks", all_positions_real),
        (on_model(check_losses_are_sums, COVERAGE),),
    ),
    Defect(
        "sparsemax weights that sum to less than one",
        patched(Sparsemax, "forward", sparsemax_below_one),
        (
            lambda: check_normalizer(Sparsemax()),
            on_model(check_attention_weights, "decoder=recurrent.cross.normalizer=sparsemax"),
        ),
    ),
    Defect(
        "an additive score that ignores the query",
        patched(Additive, "join", lambda self, q, k: JOIN(self, torch.zeros_like(q), k)),
        (additive_check, on_model(check_gradients_reach_all_weights, "decoder=recurrent.cross.score=additive")),
    ),
    Defect(
        "a mean pool with padding",
        patched(Mean, "forward", mean_with_padding),
        (on_model(check_padding_has_no_effect, "encoder=recurrent.pool=mean"), lambda: check_pool(Mean())),
    ),
    Defect(
        "a last pool that takes padding",
        patched(Last, "forward", last_index),
        (on_model(check_padding_has_no_effect, "encoder.pool=last"), lambda: check_pool(Last())),
    ),
    Defect(
        "a last pool with the backward columns of the last token",
        patched(Last, "forward", last_token_in_both_directions),
        (lambda: check_pool_values(Last(backward_width=1), [[3, 8], [-5, -7]]),),
    ),
]


@each(DEFECTS)
def test_contract_fails_on_planted_defect(defect: Defect, check: Check, monkeypatch: Patch) -> None:
    assert_check_fails(defect, check, monkeypatch)
