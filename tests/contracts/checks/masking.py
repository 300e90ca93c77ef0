"""Contracts about what a model may depend on: no future tokens, no padding, no other rows of the batch."""

import itertools

import torch

from contracts.checks.common import (
    SOURCE_LENGTHS,
    TARGET_LENGTHS,
    assert_close,
    assert_differs,
    padding_mask,
)
from contracts.checks.running import (
    ModelInputs,
    ModelOutputs,
    keep_layers,
    key_side,
    random_inputs,
    run_model,
    vocabulary_sizes,
    without_sampling,
)
from contracts.variants import B, T
from saccade.data.tokenizers import UNKNOWN
from saccade.models.assemble import Model


def check_causal_mask(model: Model) -> None:
    """Changing tokens from position 5 on changes no hidden state before position 5."""
    model.eval()
    inputs = random_inputs(model)
    target_size = vocabulary_sizes(model)[1]
    changed = inputs.target.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % target_size
    for capturing, keep in itertools.product((False, True), (None, padding_mask((T, 6, T)))):
        before, after = (
            run_model(model, ModelInputs(inputs.source, inputs.source_keep, target, keep), capturing).hidden
            for target in (inputs.target, changed)
        )
        assert_close(before[:, :5], after[:, :5], "hidden states before the changed tokens")
        assert_differs(before[:, 5], after[:, 5], "a changed token")


def check_padding_has_no_effect(model: Model) -> None:
    """A row of a padded batch gives the same memory, hidden states and attention weights as that row alone without
    padding, whatever the padding contains, in training and in evaluation mode."""
    keep_layers(model)
    inputs = random_inputs(model)
    other_padding = ModelInputs(
        inputs.source.masked_fill(~padding_mask(SOURCE_LENGTHS), UNKNOWN),
        inputs.source_keep,
        inputs.target.masked_fill(~padding_mask(TARGET_LENGTHS), UNKNOWN),
        inputs.target_keep,
    )
    for training, capturing in itertools.product((False, True), (False, True)):
        model.train(training)
        with without_sampling(model), torch.set_grad_enabled(training):
            padded = [run_model(model, batch, capturing) for batch in (inputs, other_padding)]
            single = [run_model(model, inputs.unpadded_row(row), capturing) for row in range(B)]
        for batch, row in itertools.product(padded, range(B)):
            assert_same_row(batch, row, single[row])


def assert_same_row(batch: ModelOutputs, row: int, single: ModelOutputs) -> None:
    hidden = single.hidden[0]
    if single.memory is not None:
        for number, (layer, expected) in enumerate(zip(batch.memory.layers, single.memory.layers, strict=True)):
            assert_close(layer[row, : expected.shape[1]], expected[0], f"layer {number} of the memory of row {row}")
        states = single.memory.states[0]
        assert_close(batch.memory.states[row, : len(states)], states, f"the memory of row {row}")
        if single.memory.summary is not None:
            assert_close(batch.memory.summary[row], single.memory.summary[0], f"the summary of row {row}")
    assert_close(batch.hidden[row, : len(hidden)], hidden, f"the hidden states of row {row}")
    for name, expected in single.maps.items():
        queries, keys = expected.shape[-2:]
        assert_close(batch.maps[name][row, :, :queries, :keys], expected[0], f"{name} of row {row}")
        assert not batch.maps[name][row, :, :queries, keys:].any(), f"{name} attends to padding"


def check_batch_order_has_no_effect(model: Model) -> None:
    model.eval()
    inputs, order = random_inputs(model), [2, 0, 1]
    for capturing in (False, True):
        original, reordered = run_model(model, inputs, capturing), run_model(model, inputs.rows(order), capturing)
        assert_close(reordered.hidden, original.hidden[order], "hidden states of rows in another order")
        for name, weights in reordered.maps.items():
            assert_close(weights, original.maps[name][order], name)


def check_fully_padded_source(model: Model) -> None:
    """A source that is all padding gives no NaN, forward or backward, with the fused kernel or without it."""
    inputs, empty = random_inputs(model), 2
    keep = padding_mask(SOURCE_LENGTHS)
    keep[empty] = False
    inputs = ModelInputs(inputs.source, keep, inputs.target, inputs.target_keep)
    for capturing in (False, True):
        model.train().zero_grad()
        outputs = run_model(model, inputs, capturing)
        assert outputs.hidden.isfinite().all(), "the hidden states are not finite"
        for name, weights in outputs.maps.items():
            assert weights.isfinite().all(), f"the weights of {name} are not finite"
            if key_side(name) == "source":
                assert not weights[empty].any(), f"{name} attends to a source that is all padding"
        memory_cost = 0 if outputs.memory is None else outputs.memory.states.square().sum()
        (outputs.hidden.square().sum() + memory_cost).backward()
        for name, weight in model.named_parameters():
            assert weight.grad is None or weight.grad.isfinite().all(), f"the gradient of {name} is not finite"
