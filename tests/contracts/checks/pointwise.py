"""The contract of norms, feed-forwards and connections: each position is computed separately."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from contracts.checks.common import assert_close
from contracts.variants import B, D, T


def check_pointwise(part: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(B, T, D, generator=torch.Generator().manual_seed(0))
    y = part(x)
    assert y.shape == x.shape
    assert y.isfinite().all()
    for row, t in itertools.product(range(B), range(T)):
        assert_close(part(x[row : row + 1, t : t + 1])[0, 0], y[row, t], "a position alone")
