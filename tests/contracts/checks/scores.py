"""The contract of a score function of attention."""

import itertools
from typing import Any

import torch
import torch.nn.functional as F

from contracts.checks.common import SOURCE_LENGTHS, assert_close, assert_differs, padding_mask
from contracts.variants import B, S, T


def check_score(score: Any, normalizer: Any) -> None:
    """`join(query(q), key(k))` are scores [B H T S], each computed from its own query and key only. If the score claims
    to be a dot product (`dot`), the fused kernel gives the same attention."""
    generator = torch.Generator().manual_seed(0)
    heads, width = 2, 11
    q, k, v = (torch.randn(B, heads, length, width, generator=generator) for length in (T, S, S))
    query, key = score.query(q), score.key(k)
    scores = score.join(query, key)
    assert scores.shape == (B, heads, T, S)
    assert key.shape == (B, heads, S, score.prepared), "`prepared` is not the width of a prepared key"
    keep = padding_mask(SOURCE_LENGTHS)[:, None, None]
    weights = normalizer(scores, keep)
    if score.is_dot_product and normalizer.is_softmax:
        fused = F.scaled_dot_product_attention(query, key, v, keep, scale=1.0)
        assert_close(fused, weights @ v, "the fused kernel")
    for row, head in itertools.product(range(B), range(heads)):
        single = score.join(query[row : row + 1, :, 3:4], key[row : row + 1, :, 2:4])
        assert_close(single[0, :, 0], scores[row, :, 3, 2:4], "one query and two keys alone")
        centered = scores[row, head] - scores[row, head].mean(-1, keepdim=True)
        assert_differs(centered[0], centered[1], f"the query in head {head}")
        assert_differs(scores[row, head, :, 0], scores[row, head, :, 1], f"the key in head {head}")
    if list(score.parameters()):
        swapped = score.join(score.query(q.flip(1)), score.key(k.flip(1))).flip(1)
        assert_differs(swapped, scores, "the head")
