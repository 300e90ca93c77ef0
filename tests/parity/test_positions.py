"""Rotary positions and T5's bias equal those of transformers."""

import pytest
import torch
from transformers import GPTNeoXConfig, T5Config
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from contracts.checks.common import progress
from saccade.parts.positions import Rotary, T5Bias
from saccade.places import Places

B, T, H, K = 3, 300, 2, 14


@pytest.mark.parametrize("first", [0, 500])
@pytest.mark.parametrize(("share", "base"), [(1.0, 10000.0), (0.3, 500.0)])
def test_rotary_positions_equal_those_of_gpt_neox(share: float, base: float, first: int) -> None:
    rope = {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share}
    config = GPTNeoXConfig(hidden_size=H * K, num_attention_heads=H, rope_parameters=rope)
    torch.manual_seed(0)
    query, key = torch.randn(B, H, T, K), torch.randn(B, H, T, K)
    places = Places.of(query[:, 0], None, progress(first))
    cosines, sines = GPTNeoXRotaryEmbedding(config)(query, places.at)
    expected = apply_rotary_pos_emb(query, key, cosines, sines)
    rotary = Rotary(base=base, share=share).for_attention(H, K, causal=True)
    for name, x, turned in zip(("query", "key"), (query, key), expected, strict=True):
        torch.testing.assert_close(rotary.turn(x, places, name), turned, atol=1e-3, rtol=0)  # they use float32 angles
    assert rotary.turn(query, places, "value") is query


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20)])
def test_t5_bias_equals_that_of_transformers(causal: bool, buckets: int, max_distance: int) -> None:
    config = T5Config(
        d_model=H * K,
        d_kv=K,
        num_heads=H,
        is_decoder=causal,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5Bias(H * K, causal, buckets=buckets, max_distance=max_distance).for_attention(H, K, causal)
    assert ours.table is not None
    with torch.no_grad():
        ours.table.copy_(theirs.relative_attention_bias.weight)
    x = torch.zeros(B, T, H * K)
    places = Places.of(x, None)
    expected = theirs.compute_bias(T, T).expand(B, -1, -1, -1)
    seen = torch.ones(T, T, dtype=torch.bool).tril() if causal else torch.ones(T, T, dtype=torch.bool)
    actual = ours.bias(x.view(B, H, T, K), places, places)
    torch.testing.assert_close(actual * seen, expected * seen, atol=0, rtol=0)
