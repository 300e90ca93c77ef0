"""Contracts of captured attention weights, and of the two ways to compute attention."""

import torch
from torch import nn

from contracts.checks.common import CHUNKS, SOURCE_LENGTHS, TARGET_LENGTHS, assert_close, padding_mask
from contracts.checks.running import encode, has_attention, key_side, query_side, random_inputs, run_model
from contracts.checks.states import coverage_states
from contracts.variants import B, T
from saccade.models.assemble import Model
from saccade.notes import capture
from saccade.parts import Unprojected


def check_attention_weights(model: Model) -> None:
    """The weights of each query are a distribution over the keys that are neither padding nor in the future; each map
    has the name of the module that computed it."""
    model.eval()
    maps = run_model(model, random_inputs(model), capturing=True).maps
    modules = dict(model.named_modules())
    reads_source = model.encoder is not None and has_attention(model)
    assert not reads_source or any(key_side(name) == "source" for name in maps), "no attention to the source"
    keep = {"source": padding_mask(SOURCE_LENGTHS), "target": padding_mask(TARGET_LENGTHS)}
    for name, weights in maps.items():
        assert name.partition("@")[0] in modules, f"{name} is not the name of a module"
        queries, keys = keep[query_side(name)], keep[key_side(name)]
        mask = keys[:, None, None, :].expand_as(weights)
        if query_side(name) == key_side(name) == "target":
            mask = mask & torch.ones(T, T, dtype=torch.bool).tril()
        assert (weights >= 0).all(), f"{name} has negative weights"
        assert not weights[~mask & queries[:, None, :, None]].any(), f"{name} attends to masked positions"
        sums = weights.sum(-1).transpose(1, 2)[queries]
        assert_close(sums, torch.ones_like(sums), f"the sum of the weights of {name}")


def check_fused_attention(model: Model) -> None:
    """The fused kernel and the explicit computation, which capture uses, give the same results."""
    model.eval()
    inputs = random_inputs(model)
    fused, explicit = run_model(model, inputs), run_model(model, inputs, capturing=True)
    assert explicit.maps or not has_attention(model), "no attention weights were captured"
    if fused.memory is not None:
        keep = fused.memory.places.keep
        assert_close(fused.memory.states[keep], explicit.memory.states[keep], "the memory")
    assert_close(fused.hidden[inputs.target_keep], explicit.hidden[inputs.target_keep], "the hidden states")


def check_capture_across_steps(model: Model) -> None:
    """Weights captured in several decoder steps are concatenated to those of one step over the whole target."""
    model.eval()
    inputs = random_inputs(model)
    memory = encode(model, inputs.source, inputs.source_keep)
    captured = []
    for chunks in (((0, T),), CHUNKS):
        with capture(model) as maps:
            state = model.decoder.start(memory, B)
            for first, end in chunks:
                _, state = model.decoder.step(inputs.target[:, first:end], state)
            captured.append(dict(maps))
    whole, concatenated = captured
    assert concatenated.keys() == whole.keys()
    for name, weights in whole.items():
        assert_close(concatenated[name], weights, name)


def check_notes_before_dropout(model: Model) -> None:
    """Captured weights do not contain attention dropout. The model must have a rate for it."""
    model.train()
    for name, weights in run_model(model, random_inputs(model), capturing=True).maps.items():
        sums = weights.sum(-1)[:, :, 0]  # the first position is never padding
        assert_close(sums, torch.ones_like(sums), name)


def check_coverage(model: Model) -> None:
    """Coverage starts at zero and is the sum of the attention weights of all past queries that are not padding."""
    model.eval()
    inputs = random_inputs(model)
    memory = encode(model, inputs.source, inputs.source_keep)
    for chunks, keep in ((CHUNKS, None), (((0, T),), inputs.target_keep)):
        with capture(model) as maps:
            state = model.decoder.start(memory, B)
            assert not any(coverage.so_far.any() for coverage in coverage_states(state)), "coverage before step 1"
            for first, end in chunks:
                _, state = model.decoder.step(inputs.target[:, first:end], state, keep)
        real = torch.ones(B, 1, T, 1) if keep is None else keep[:, None, :, None]
        expected = [(w * real).sum(2) for name, w in maps.items() if has_coverage(model.get_submodule(name))]
        actual = [coverage.so_far for coverage in coverage_states(state)]
        assert actual, "no attention of the model has coverage"
        for so_far, sums in zip(actual, expected, strict=True):
            assert_close(so_far, sums, "coverage")
            assert (so_far.amax(-1) > 1.2).any(), "no position was attended to twice, so the check proves nothing"


def has_coverage(part: nn.Module) -> bool:
    return isinstance(part, Unprojected) and part.coverage_weight is not None
