"""The contract of a position encoding, and of its maximum length."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from contracts.checks.common import CHUNKS, assert_close, assert_differs, padding_mask, perturbed, progress
from contracts.variants import B, D, T
from saccade.errors import SaccadeError
from saccade.notes import capture
from saccade.parts import MultiHead
from saccade.parts.positions import Position
from saccade.places import Places, Progress


def check_position(make: Callable[[bool], Position]) -> None:
    """Each position is encoded by its number in its own row, in any chunk and with padding on either side, at the input
    and inside self-attention; the fused kernel and the explicit computation agree. Any length is accepted, or the error
    names the config key of the limit. `make(causal)` builds the encoding."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, D, generator=generator)
    for causal in (True, False):
        position = make(causal)
        attention = perturbed(MultiHead(D, causal, position=position, heads=2)).eval()
        with capture(attention):
            explicit, _ = run(position, attention, x, Places.of(x, None))
        assert_close(run(position, attention, x, Places.of(x, None))[0], explicit, "the output of the fused kernel")
        for capturing in (False, True):
            with capture(attention) if capturing else nullcontext():
                if causal:
                    check_chunks(position, attention, x)
                check_padding(position, attention, x)
        check_order(position, attention, x)
    check_longest(make(True), generator)
    check_limit_is_that_of_the_rows(make(True), x)


def run(position: Position, attention: MultiHead, x: Tensor, places: Places, state: Any = None) -> tuple[Tensor, Any]:
    return attention(position.embed(x, places), places, state or attention.start(None, x.shape[0]))


def check_chunks(position: Position, attention: MultiHead, x: Tensor) -> None:
    whole, _ = run(position, attention, x, Places.of(x, None))
    state = attention.start(None, B)
    for first, end in CHUNKS:
        chunk = x[:, first:end]
        y, state = run(position, attention, chunk, Places.of(chunk, None, progress(first)), state)
        assert_close(y, whole[:, first:end], f"positions {first} to {end}")


def check_padding(position: Position, attention: MultiHead, x: Tensor) -> None:
    lengths = (T, 4, 1)
    for side, keep in (("right", padding_mask(lengths)), ("left", padding_mask(lengths).flip(1))):
        padded, _ = run(position, attention, x, Places.of(x, keep))
        for row in range(B):
            single = x[[row]][:, keep[row]]
            expected, _ = run(position, attention, single, Places.of(single, None))
            assert_close(padded[row, keep[row]], expected[0], f"row {row} with padding on the {side}")


def check_order(position: Position, attention: MultiHead, x: Tensor) -> None:
    """Without a causal mask the last position notices if the earlier ones are swapped, unless there is no encoding."""
    swapped = x[:, [1, 0, *range(2, T)]]
    before, after = (run(position, attention, values, Places.of(values, None))[0][:, -1] for values in (x, swapped))
    if position.is_for_attention or position.overrides("embed"):
        assert_differs(after, before, "the order")
    else:
        assert_close(after, before, "the output without positions")


def check_longest(position: Position, generator: torch.Generator) -> None:
    long = torch.randn(1, 1000, D, generator=generator)
    attention = MultiHead(D, True, position=position, heads=2)
    if not exceeds_limit(lambda: run(position, attention, long, Places.of(long, None))):
        y, _ = run(position, attention, long, Places.of(long, None))
        assert y.shape == long.shape
        assert y.isfinite().all()


def check_limit_is_that_of_the_rows(position: Position, x: Tensor) -> None:
    """Rows may use all positions, also after a longer row has left the batch and whatever padding they have; one more
    is an error."""
    if position.longest is None:
        return
    last = position.longest - 1
    chunk, keep = x[:, :2], torch.tensor([[True, False], [False, True], [True, False]])
    places = Places.of(chunk, keep, replace(progress(last), end=last + 9))
    embedded = position.embed(chunk, places)
    for row in range(B):
        single = x[[row]][:, :2][:, keep[row]]
        expected = position.embed(single, Places.of(single, None, Progress(torch.tensor([last]), last)))
        assert_close(embedded[row, keep[row]], expected[0], f"row {row} at the last position")
    exceeded = Places.of(chunk, None, replace(progress(last), end=last + 9))
    assert exceeds_limit(lambda: position.embed(chunk, exceeded)), "a position past the limit is no error"


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
