"""The contract of a readout: (state, context, token vector) → hidden state, for each position separately."""

import itertools
from collections.abc import Callable
from typing import Any

import torch

from contracts.checks.common import assert_close, assert_differs
from contracts.variants import B, D, T


def check_readout(make: Callable[[int], Any]) -> None:
    """The hidden state has the shape of the cell state, depends on it, and is computed for each position separately.
    `make(width)` builds the readout for contexts of this width, which may be 0."""
    generator = torch.Generator().manual_seed(0)
    for width in (0, 7, D):
        readout = make(width)
        state, token = (torch.randn(B, T, D, generator=generator) for _ in range(2))
        context = torch.randn(B, T, width, generator=generator)
        hidden = readout(state, context, token)
        assert hidden.shape == state.shape
        assert_differs(readout(state.flip(1), context, token), hidden, "the state")
        for row, t in itertools.product(range(B), range(T)):
            single = [x[row : row + 1, t : t + 1] for x in (state, context, token)]
            assert_close(readout(*single)[0, 0], hidden[row, t], "a position alone")
