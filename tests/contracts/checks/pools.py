"""The contract of a pool: hidden states → one summary vector per sequence."""

from typing import Any

import torch

from contracts.checks.common import TARGET_LENGTHS, assert_close, assert_differs, padding_mask
from contracts.variants import B, D, T
from saccade.places import Places


def check_pool(pool: Any) -> None:
    """Padding has no effect and no gradient; a sequence that is all padding gives zeros."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(B, T, D, generator=generator)
    keep = padding_mask(TARGET_LENGTHS)
    noisy = states.masked_fill(~keep[..., None], 9.0)
    for batch in (states, noisy):
        leaf = batch.clone().requires_grad_()
        summary = pool(leaf, Places.of(batch, keep))
        assert summary.shape == (B, D)
        for row, length in enumerate(TARGET_LENGTHS):
            single = states[[row], :length]
            assert_close(summary[row], pool(single, Places.of(single, None))[0], f"row {row}", 1e-6)
        summary.square().sum().backward()
        assert not leaf.grad[~keep].any(), "padding has a gradient"
    keep_without_row_1 = keep.clone()
    keep_without_row_1[1] = False
    leaf = states.clone().requires_grad_()
    summary = pool(leaf, Places.of(states, keep_without_row_1))
    assert not summary[1].any(), "a sequence that is all padding has a summary"
    assert_differs(summary[0], torch.zeros(D), "a sequence with tokens")
    summary.square().sum().backward()
    assert leaf.grad.isfinite().all(), "the gradient of a sequence that is all padding is not finite"
    all_kept = Places.of(states, torch.ones(B, T, dtype=torch.bool))
    assert_close(pool(states, all_kept), pool(states, Places.of(states, None)), "a mask without padding")


def check_pool_values(pool: Any, expected: list[list[float]]) -> None:
    """The summaries of two sequences with two columns: [1 8] [3 4], and [−5 −7]; the other positions are padding."""
    states = torch.tensor([[[1.0, 8.0], [3.0, 4.0], [100.0, 200.0]], [[-5.0, -7.0], [9.0, 9.0], [9.0, 9.0]]])
    assert pool(states, Places.of(states, padding_mask((2, 1, 3))[:2])).tolist() == expected
