"""The contract of norms, feed-forwards and connections: each position is computed separately."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from contracts.checks.common import TARGET_LENGTHS, assert_close, padding_mask
from contracts.variants import B, D, T
from saccade.places import Places


def check_pointwise(part: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(B, T, D, generator=torch.Generator().manual_seed(0))
    y = part(x)
    assert y.shape == x.shape
    assert y.isfinite().all()
    for row, t in itertools.product(range(B), range(T)):
        assert_close(part(x[row : row + 1, t : t + 1])[0, 0], y[row, t], "a position alone")


def check_feed_forward(part: Any) -> None:
    """A feed-forward computes each position separately, and padding has no influence on the others, neither in
    evaluation nor in training mode."""
    check_pointwise(lambda x: part.eval()(x, Places.of(x, None)))
    generator = torch.Generator().manual_seed(0)
    x, keep = torch.randn(B, T, D, generator=generator), padding_mask(TARGET_LENGTHS)
    noisy = x.masked_scatter(~keep[..., None], 9 * torch.randn(B * T * D, generator=generator))
    for training in (False, True):
        part.train(training)
        y = part(x, Places.of(x, keep))
        assert_close(part(noisy, Places.of(x, keep))[keep], y[keep], "positions beside other padding")
        for row, length in enumerate(TARGET_LENGTHS):
            alone = x[row : row + 1, :length]
            assert_close(part(alone, Places.of(alone, None))[0], y[row, :length], "a row without its padding")
