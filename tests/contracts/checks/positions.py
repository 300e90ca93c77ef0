"""The contract of a position encoding, and of its maximum length."""

from collections.abc import Callable
from typing import Any

import torch

from contracts.checks.common import CHUNKS, assert_close, assert_differs
from contracts.variants import B, D, T
from saccade.errors import SaccadeError
from saccade.places import Places


def check_position(position: Any) -> None:
    """The encoding depends on the absolute position, also in a chunk that starts later. Any length is accepted, or the
    error names the config key of the limit."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, D, generator=generator)
    whole = position.embed(x, Places.of(x, None))
    assert whole.shape == x.shape
    for first, end in CHUNKS:
        chunk = x[:, first:end]
        start = torch.full((B,), first)
        embedded = position.embed(chunk, Places.of(chunk, None, start))
        assert_close(embedded, whole[:, first:end], f"positions {first} to {end}")
    assert_differs(whole[:, 1] - x[:, 1], whole[:, 2] - x[:, 2], "the position")
    long = torch.randn(1, 1000, D, generator=generator)
    if not exceeds_limit(lambda: position.embed(long, Places.of(long, None))):
        assert position.embed(long, Places.of(long, None)).shape == long.shape


def exceeds_limit(embed: Callable[[], Any]) -> bool:
    """Whether the input is longer than the limit of a position encoding. The error must name its config key."""
    try:
        embed()
    except SaccadeError as error:
        message = str(error)
    else:
        return False
    assert "position." in message, "the error does not name the config key of the length limit"
    return True
