"""The contract of a recurrent cell."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from contracts.checks.common import TARGET_LENGTHS, assert_close, padding_mask, perturbed, tensors
from contracts.variants import B, D, T
from saccade.errors import SaccadeError
from saccade.places import Places, select


def check_cell(make: Callable[..., Any], depth: int, bidirectional: bool) -> None:
    """A padded row gives the same outputs as that row alone; a row that is all padding gives no NaN; padding before a
    token is refused; pieces and single steps give the same outputs as the whole sequence."""
    generator = torch.Generator().manual_seed(0)
    x, inputs = torch.randn(B, T, 5, generator=generator), 5
    cell = perturbed(make(inputs=inputs, dim=D, depth=depth, bidirectional=bidirectional, dropout=0.0), by=0.1)
    assert cell.backward_width == (D // 2 if bidirectional else 0)
    initial, keep = checked_initial_state(cell, depth, generator), padding_mask(TARGET_LENGTHS)
    for state in (None, initial):
        y, _ = cell.whole(x, Places.of(x, keep), state)
        noisy, _ = cell.whole(x.masked_fill(~keep[..., None], 9.0), Places.of(x, keep), state)
        for row, length in enumerate(TARGET_LENGTHS):
            single = x[[row], :length]
            expected, _ = cell.whole(single, Places.of(single, None), select(state, torch.tensor([row])))
            assert_close(y[row, :length], expected[0], f"row {row}")
            assert_close(noisy[row, :length], expected[0], f"row {row} with noise in its padding")
    keep_without_row_1 = keep.clone()
    keep_without_row_1[1] = False
    y, last = cell.whole(x, Places.of(x, keep_without_row_1))
    assert all(values.isfinite().all() for values in (y, *tensors(last))), "a row that is all padding gives NaN"
    for refused in (keep.flip(1), (torch.arange(T) != 1).expand(B, T)):
        assert refuses_padding(partial(cell.whole, x, Places.of(x, refused))), "padding before a token is accepted"
    if not bidirectional:
        check_cell_steps(cell, x, initial)


def refuses_padding(compute: Callable[[], Any]) -> bool:
    try:
        compute()
    except SaccadeError as error:
        return "padding" in str(error)
    return False


def check_cell_steps(cell: Any, x: Tensor, initial: Any) -> None:
    """Two pieces and single steps give the outputs and the final state of the whole sequence."""
    whole, last = cell.whole(x, Places.of(x, None), initial)
    pieces, state = [], initial
    for piece in (x[:, :3], x[:, 3:]):
        y, state = cell.whole(piece, Places.of(piece, None), state)
        pieces.append(y)
    assert_close(torch.cat(pieces, 1), whole, "the outputs in two pieces")
    steps, state = [], initial
    for t in range(T):
        gates = cell.input_gates(x[:, t, :2]) + cell.input_gates(x[:, t, 2:], 2)
        assert_close(gates, cell.input_gates(x)[:, t], "the sum of the input gates of two groups of columns")
        y, state = cell.step(gates, state)
        assert y is state[-1][0], "the output is not the hidden state of the last layer"
        steps.append(y)
    assert_close(torch.stack(steps, 1), whole, "the outputs step by step")
    for actual, expected in zip(tensors(state), tensors(last), strict=True):
        assert_close(actual, expected, "the state after all steps")
    order = torch.tensor([2, 0])
    selected, _ = cell.step(cell.input_gates(x[order, 0]), select(initial, order))
    assert_close(selected, steps[0][order], "rows in another order")


def checked_initial_state(cell: Any, depth: int, generator: torch.Generator) -> Any:
    """A state made by `initial_state`: the columns of its argument in the order of layers, directions and vectors."""
    directions = 2 if cell.backward_width else 1
    width = D // directions
    start = torch.randn(B, depth * directions * cell.state_vectors * width, generator=generator).tanh()
    state = cell.initial_state(start)
    assert [len(layer) for layer in state] == [cell.state_vectors] * depth * directions
    assert torch.equal(torch.cat(tensors(state), -1), start), "the state does not contain the given columns in order"
    return state
