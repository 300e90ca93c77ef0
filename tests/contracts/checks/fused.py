"""The contract of fused forms: what they compute is what the modules compute."""

import torch

from contracts.checks.common import assert_close
from contracts.checks.running import random_inputs
from contracts.variants import B
from saccade.data.batches import Padded
from saccade.decode.torch_engine import FusedModel, UnfusedDecoder
from saccade.models.assemble import Model
from saccade.places import select


@torch.inference_mode()
def check_fused_model(model: Model) -> None:
    """The fused encoder, the fused steps of a beam that is reordered, and those of a single hypothesis give the results
    of the modules."""
    if model.encoder is None:
        return  # these are not fused
    model.eval()
    inputs, order = random_inputs(model), torch.tensor([1, 0, 2, 3, 5, 4])
    modules, fused, keep = UnfusedDecoder(model), FusedModel(model), inputs.source_keep
    memory, fused_memory = model.encode(inputs.source, keep), fused.encode(Padded(inputs.source, keep))
    assert_close(fused_memory.states[keep], memory.states[keep], "the memory")
    rows = torch.arange(B).repeat_interleave(2)
    state, fused_state = (select(decoder.start(memory, B), rows) for decoder in (modules, fused))
    for t in range(inputs.target.shape[1]):
        tokens = inputs.target[:, t].repeat_interleave(2) - torch.arange(2 * B) % 2
        expected, state = modules.step(tokens, state)
        actual, fused_state = fused.step(tokens, fused_state)
        assert_close(actual, expected, f"step {t}")
        state, fused_state = select(state, order), select(fused_state, order)
    memory = model.encode(inputs.source[:1], None)
    expected_single, actual_single = modules.single(memory), fused.single(memory)
    for t, token in enumerate(inputs.target[0].tolist()):
        actual, expected = (torch.from_numpy(single.log_probs(token)) for single in (actual_single, expected_single))
        assert_close(actual, expected, f"step {t} of a single hypothesis")
