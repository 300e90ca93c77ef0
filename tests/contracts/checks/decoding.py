"""Contracts of decoding step by step: the state that a decoder carries, and how search reorders it."""

from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from contracts.checks.cells import refuses_padding
from contracts.checks.common import CHUNKS, assert_close, assert_differs, tensors
from contracts.checks.running import encode, random_inputs, vocabulary_sizes
from contracts.checks.states import float_tensors, per_sentence_values, with_replaced_tensors
from contracts.variants import B
from saccade.data.tokenizers import SPECIAL
from saccade.models.assemble import Model
from saccade.models.recurrent import RecurrentDecoder
from saccade.notes import capture
from saccade.places import select


def check_incremental_decoding(model: Model) -> None:
    """Several steps (a prefix, single tokens, a chunk) give the same hidden states and final state as one step over
    the whole target."""
    model.eval()
    inputs = random_inputs(model)
    memory = encode(model, inputs.source, inputs.source_keep)
    whole, expected_state = model.decoder.step(inputs.target, model.decoder.start(memory, B))
    for capturing in (False, True):
        with capture(model) if capturing else nullcontext():
            state, pieces = model.decoder.start(memory, B), []
            for first, end in CHUNKS:
                hidden, state = model.decoder.step(inputs.target[:, first:end], state)
                pieces.append(hidden)
        assert_close(torch.cat(pieces, 1), whole, "hidden states step by step")
    for actual, expected in zip(tensors(state), tensors(expected_state), strict=True):
        assert_close(actual.float(), expected.float(), "the state after all steps")


def check_select(model: Model) -> None:
    """After `select`, each hypothesis has the hidden states of a teacher-forced pass over its own tokens; tensors that
    are computed from the memory keep one row per sentence."""
    model.eval()
    inputs = random_inputs(model)
    memory = encode(model, inputs.source, inputs.source_keep)
    target_size = vocabulary_sizes(model)[1]
    memories = [encode(model, inputs.unpadded_row(row).source, None) for row in range(B)]

    def forced(sentence: int, tokens: Tensor) -> Tensor:
        state = model.decoder.start(memories[sentence], 1)
        return model.decoder.step(tokens[None], state)[0][0, -1]

    _, state = model.decoder.step(inputs.target[:, :4], model.decoder.start(memory, B))
    sentences, decoded = torch.arange(B), inputs.target[:, :4]
    selections = [
        (torch.tensor([0, 0, 1, 1, 2, 2]), None),  # greedy search becomes a beam of two
        (torch.tensor([1, 0, 2, 2, 5, 4]), None),  # hypotheses swap; one replaces another
        (torch.tensor([4, 5, 0, 1]), torch.tensor([2, 0])),  # sentence 1 leaves; the others swap
        (torch.tensor([2, 1]), torch.tensor([1, 0])),  # one hypothesis per sentence again
    ]
    for number, (rows, remaining) in enumerate(selections):
        state = select(state, rows, remaining)
        sentences, decoded = sentences[rows], decoded[rows]
        count = len(set(sentences.tolist()))
        for value in per_sentence_values(state):
            assert {len(tensor) for tensor in tensors(value)} == {count}, "the memory has not one row per sentence"
        tokens = (torch.arange(len(rows)) * 3 + number + len(SPECIAL)) % target_size
        decoded = torch.cat([decoded, tokens[:, None]], 1)
        hidden, state = model.decoder.step(tokens[:, None], state)
        for row, sentence in enumerate(sentences.tolist()):
            assert_close(hidden[row, 0], forced(sentence, decoded[row]), f"hypothesis {row} after selection {number}")


def check_prompts_of_unequal_length(model: Model) -> None:
    """Rows with prompts of different lengths, padded in one batch, go on as each of them does alone, also after they
    were reordered. Recurrent decoders need the padding on the right, and refuse it on the left."""
    model.eval()
    inputs, lengths = random_inputs(model), torch.tensor([4, 2, 1])
    memory = encode(model, inputs.source, inputs.source_keep)
    order = torch.tensor([2, 0, 1])
    for side in ("right", "left"):
        prompts, keep = inputs.target[:, :4], torch.arange(4) < lengths[:, None]
        if side == "left":
            prompts, keep = prompts.flip(1), keep.flip(1)
            if isinstance(model.decoder, RecurrentDecoder):
                start = model.decoder.start(memory, B)
                refused = refuses_padding(partial(model.decoder.step, prompts, start, keep))
                assert refused, "a recurrent decoder accepts padding on the left"
                continue
        _, state = model.decoder.step(prompts, model.decoder.start(memory, B), keep)
        after, state = model.decoder.step(inputs.target[:, 4:5], state)
        later, _ = model.decoder.step(inputs.target[order, 5:7], select(state, order, order))
        for row in range(B):
            single = inputs.unpadded_row(row)
            state = model.decoder.start(encode(model, single.source, None), 1)
            tokens = torch.cat([prompts[row, keep[row]], inputs.target[row, 4:7]])[None]
            expected, _ = model.decoder.step(tokens, state)
            assert_close(after[row], expected[0, -3:-2], f"row {row} after its prompt, with padding on the {side}")
            assert_close(later[order.tolist().index(row)], expected[0, -2:], f"row {row} later")


def check_whole_state_is_used(model: Model) -> None:
    """Every tensor of the decoder state has an effect on the next step."""
    model.eval()
    inputs, generator = random_inputs(model), torch.Generator().manual_seed(0)
    memory = encode(model, inputs.source, inputs.source_keep)
    _, state = model.decoder.step(inputs.target[:, :3], model.decoder.start(memory, B))
    original, _ = model.decoder.step(inputs.target[:, 3:4], state)
    for number, group in enumerate(float_tensors(state)):
        noisy = {id(old): old + 9 * torch.randn(old.shape, generator=generator) for old in group}
        changed, _ = model.decoder.step(inputs.target[:, 3:4], with_replaced_tensors(state, noisy))
        shapes = [tuple(old.shape) for old in group]
        assert_differs(changed, original, f"entry {number} of the state, of shape {shapes},")
