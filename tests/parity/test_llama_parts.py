"""RMS norm and the gated feed-forward equal those of transformers' Llama."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from saccade.parts.feed_forwards import GatedFeedForward
from saccade.parts.norms import RMSNorm
from saccade.places import Places

D, INNER = 22, 17


@pytest.mark.parametrize("eps", [1e-6, 0.1])
def test_rms_norm_equals_that_of_llama(eps: float) -> None:
    torch.manual_seed(0)
    ours, theirs = RMSNorm(D, eps=eps), LlamaRMSNorm(D, eps)
    gain, x = torch.randn(D), torch.randn(3, 5, D)
    with torch.no_grad():
        ours.weight.copy_(gain)
        theirs.weight.copy_(gain)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.fused()(x), theirs(x))


@pytest.mark.parametrize(("ours", "theirs"), [("swish", "silu"), ("gelu", "gelu"), ("relu", "relu")])
def test_gated_feed_forward_equals_that_of_llama(ours: str, theirs: str) -> None:
    torch.manual_seed(0)
    reference = LlamaMLP(LlamaConfig(hidden_size=D, intermediate_size=INNER, num_attention_heads=1, hidden_act=theirs))
    part = GatedFeedForward(D, inner=INNER, activation=ours)
    with torch.no_grad():
        part.gate.weight.copy_(reference.gate_proj.weight)
        part.up.weight.copy_(reference.up_proj.weight)
        part.down.weight.copy_(reference.down_proj.weight)
    x = torch.randn(3, 5, D)
    expected = reference(x)
    torch.testing.assert_close(part(x, Places.of(x, None)), expected)
    torch.testing.assert_close(part.fused()(x), expected)
