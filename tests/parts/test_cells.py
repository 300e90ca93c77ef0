"""Cells against hand-written formulas, their initialization, and their gradients by finite differences. The comparison
with torch's own cells is in tests/parity."""

from collections.abc import Callable
from math import exp, tanh
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.checks.common import padding_mask, perturbed, tensors
from saccade.config import python_layer, resolve
from saccade.inputs import Tokens
from saccade.models.assemble import ModelConfig, assemble
from saccade.parts import CELLS, RecurrentNet
from saccade.parts.cells import gru, lstm
from saccade.parts.cells import tanh as tanh_cell
from saccade.places import Memory, Places

every_cell = pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def cell_of_width_one(make: Callable[..., RecurrentNet], gates: int) -> RecurrentNet:
    """A cell with one input and one output: gate i has the weights 0.1·(i+1) for the input and 0.2·(i+1) for the state,
    and the biases 0.01·(i+1) and 0.02·(i+1)."""
    cell = make(inputs=1, dim=1).double()
    with torch.no_grad():
        for name, scale in (("weight_ih", 0.1), ("weight_hh", 0.2), ("bias_ih", 0.01), ("bias_hh", 0.02)):
            weight = cell.net.get_parameter(f"{name}_l0")
            weight.copy_((scale * torch.arange(1.0, gates + 1)).view(weight.shape))
    return cell


def state_after_step(cell: RecurrentNet, x: float, *state: float) -> list[float]:
    gates = cell.input_gates(torch.tensor([[x]], dtype=torch.float64))
    _, (layer,) = cell.step(gates, (tuple(torch.tensor([[h]], dtype=torch.float64) for h in state),))
    return [vector.item() for vector in layer]


X, H, C = 0.7, -0.4, 0.9


def test_tanh_cell_matches_its_formula() -> None:
    assert state_after_step(cell_of_width_one(tanh_cell, 1), X, H) == pytest.approx(
        [tanh(0.1 * X + 0.2 * H + 0.01 + 0.02)]
    )


def test_gru_matches_its_formula() -> None:
    """Torch's gate order: reset, update, new."""
    reset = sigmoid(0.1 * X + 0.2 * H + 0.01 + 0.02)
    keep = sigmoid(0.2 * X + 0.4 * H + 0.02 + 0.04)
    new = tanh(0.3 * X + 0.03 + reset * (0.6 * H + 0.06))
    assert state_after_step(cell_of_width_one(gru, 3), X, H) == pytest.approx([(1 - keep) * new + keep * H])


def test_lstm_matches_its_formula() -> None:
    """Torch's gate order: input, forget, cell, output."""
    i, f, g, o = (0.1 * n * X + 0.2 * n * H + 0.01 * n + 0.02 * n for n in (1, 2, 3, 4))
    c = sigmoid(f) * C + sigmoid(i) * tanh(g)
    assert state_after_step(cell_of_width_one(lstm, 4), X, H, C) == pytest.approx([sigmoid(o) * tanh(c), c])


# ── initialization ────────────────────────────────────────────────────────────────────────────────


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_matrices_are_initialized_orthogonal_and_input_matrices_xavier(
    make: Callable[..., RecurrentNet], bidirectional: bool
) -> None:
    cell = make(inputs=5, dim=8, depth=2, bidirectional=bidirectional)
    width = cell.net.hidden_size
    for name, weight in cell.net.named_parameters():
        for gate in weight.detach().split(width):
            if "weight_hh" in name:
                torch.testing.assert_close(gate @ gate.T, torch.eye(width), msg=name)
            elif "weight_ih" in name:
                assert 0 < gate.abs().max() <= (6 / (gate.shape[0] + gate.shape[1])) ** 0.5, name


@pytest.mark.parametrize("bidirectional", [False, True])
def test_forget_gate_bias_of_lstm_is_initialized_to_one(bidirectional: bool) -> None:
    cell = lstm(inputs=5, dim=6, depth=2, bidirectional=bidirectional)
    width = cell.net.hidden_size
    for suffix in ("l0", "l1", *(("l0_reverse", "l1_reverse") if bidirectional else ())):
        bias = cell.net.get_parameter(f"bias_ih_{suffix}") + cell.net.get_parameter(f"bias_hh_{suffix}")
        assert [gate.unique().tolist() for gate in bias.split(width)] == [[0], [1], [0], [0]]


@pytest.mark.parametrize("make", [tanh_cell, gru], ids=["tanh", "gru"])
def test_biases_of_tanh_and_gru_are_initialized_to_zero(make: Callable[..., RecurrentNet]) -> None:
    cell = make(inputs=5, dim=6, depth=2)
    assert not any(weight.any() for name, weight in cell.net.named_parameters() if "bias" in name)


# ── dropout and padding ───────────────────────────────────────────────────────────────────────────


@every_cell
@pytest.mark.parametrize("depth", [1, 2])
def test_dropout_is_between_layers_and_only_in_training(make: Callable[..., RecurrentNet], depth: int) -> None:
    torch.manual_seed(0)
    cell = make(inputs=5, dim=6, depth=depth, dropout=0.5)
    x = torch.randn(3, 4, 5)
    state = cell.initial_state(torch.zeros(3, depth * cell.state_vectors * 6))
    runs: list[Callable[[], Tensor]] = [
        lambda: cell.whole(x, Places.of(x, None))[0],
        lambda: cell.step(cell.input_gates(x[:, 0]), state)[0],
    ]
    for run in runs:
        cell.train()
        assert torch.equal(run(), run()) == (depth == 1)
        cell.eval()
        assert torch.equal(run(), run())


@every_cell
@pytest.mark.parametrize("bidirectional", [True, False])
def test_final_state_of_padded_row_is_that_at_its_last_real_position(
    make: Callable[..., RecurrentNet], bidirectional: bool
) -> None:
    torch.manual_seed(0)
    cell, lengths = perturbed(make(inputs=5, dim=6, depth=2, bidirectional=bidirectional)), (4, 2, 1)
    x = torch.randn(3, 4, 5)
    _, batch_state = cell.whole(x, Places.of(x, padding_mask(lengths)))
    for row, length in enumerate(lengths):
        unpadded = x[[row], :length]
        _, row_state = cell.whole(unpadded, Places.of(unpadded, None))
        for actual, expected in zip(tensors(batch_state), tensors(row_state), strict=True):
            torch.testing.assert_close(actual[[row]], expected)


# ── gradients ─────────────────────────────────────────────────────────────────────────────────────


@every_cell
def test_gradients_of_one_step_equal_finite_differences(make: Callable[..., RecurrentNet]) -> None:
    torch.manual_seed(0)
    cell = perturbed(make(inputs=2, dim=3, depth=2)).double()
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    start = torch.randn(2, 2 * cell.state_vectors * 3, dtype=torch.float64, requires_grad=True)

    def step(x: Tensor, start: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        y, state = cell.step(cell.input_gates(x), cell.initial_state(start))
        return (y, *tensors(state))

    assert torch.autograd.gradcheck(step, (x, start, *cell.parameters()))


DECODERS: dict[str, dict[str, Any]] = {
    "additive, before": {"cross": {"score": "additive"}},
    "multiplicative, after, input feeding": {
        "cell": "lstm",
        "cross": {"score": "multiplicative"},
        "attend": "after",
        "input_feeding": True,
        "readout": "attentional",
    },
    "coverage": {"cross": {"score": "additive", "coverage": True}, "input_feeding": True},
    "sparsemax": {"cross": {"score": "reduced_rank", "normalizer": "sparsemax"}},
    "every step": {"cell": "tanh", "cross": "every_step", "readout": "plain"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DECODERS)
def test_gradients_of_two_decoder_steps_equal_finite_differences(kind: str) -> None:
    """With respect to all its weights, the encoder's states (some are padding) and the summary."""
    tree = {"dim": 2, "decoder": {"kind": "recurrent"} | DECODERS[kind], "encoder": "recurrent", "head": "linear"}
    torch.manual_seed(0)
    decoder: nn.Module = perturbed(
        assemble(resolve(ModelConfig, [python_layer(tree)]).config, Tokens(5), 5).double().eval()
    ).decoder
    states = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    summary = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([[1, 4], [2, 3]])

    def steps(states: Tensor, summary: Tensor, *weights: Tensor) -> Tensor:
        memory = Memory(states, Places.of(states, padding_mask((3, 2))), summary)
        return decoder.step(tokens, decoder.start(memory, 2))[0]  # type: ignore[operator]

    assert torch.autograd.gradcheck(steps, (states, summary, *decoder.parameters()))
