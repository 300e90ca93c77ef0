"""Cells by hand, how they begin, and their gradients by differences; that they are torch's is in parity/."""

from collections.abc import Callable
from math import exp, tanh
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.checks import keeps, shaken, tensors
from saccade.config import python_layer, resolve
from saccade.models.assemble import ModelConfig, assemble
from saccade.parts import CELLS, RecurrentNet
from saccade.parts.cells import gru, lstm
from saccade.parts.cells import tanh as plain
from saccade.places import Memory, Places

every_cell = pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def one_number(make: Callable[..., RecurrentNet], gates: int) -> RecurrentNet:
    """A cell of width one: gate i has the weights 0.1·(i+1) for the input, 0.2·(i+1) for the state, and the biases
    0.01·(i+1) and 0.02·(i+1)."""
    cell = make(inputs=1, dim=1).double()
    with torch.no_grad():
        for name, scale in (("weight_ih", 0.1), ("weight_hh", 0.2), ("bias_ih", 0.01), ("bias_hh", 0.02)):
            weight = cell.net.get_parameter(f"{name}_l0")
            weight.copy_((scale * torch.arange(1.0, gates + 1)).view(weight.shape))
    return cell


def stepped(cell: RecurrentNet, x: float, *state: float) -> list[float]:
    given = cell.input_gates(torch.tensor([[x]], dtype=torch.float64))
    _, (after,) = cell.step(given, (tuple(torch.tensor([[h]], dtype=torch.float64) for h in state),))
    return [part.item() for part in after]


X, H, C = 0.7, -0.4, 0.9


def test_a_tanh_cell_by_hand() -> None:
    assert stepped(one_number(plain, 1), X, H) == pytest.approx([tanh(0.1 * X + 0.2 * H + 0.01 + 0.02)])


def test_a_gru_by_hand() -> None:
    """The first gate resets what the state says to the new state, the second keeps the old state."""
    reset = sigmoid(0.1 * X + 0.2 * H + 0.01 + 0.02)
    keep = sigmoid(0.2 * X + 0.4 * H + 0.02 + 0.04)
    new = tanh(0.3 * X + 0.03 + reset * (0.6 * H + 0.06))
    assert stepped(one_number(gru, 3), X, H) == pytest.approx([(1 - keep) * new + keep * H])


def test_an_lstm_by_hand() -> None:
    """Gates in the order of torch: input, forget, new, output."""
    into, stay, new, out = (0.1 * n * X + 0.2 * n * H + 0.01 * n + 0.02 * n for n in (1, 2, 3, 4))
    after = sigmoid(stay) * C + sigmoid(into) * tanh(new)
    assert stepped(one_number(lstm, 4), X, H, C) == pytest.approx([sigmoid(out) * tanh(after), after])


# ── how they begin ────────────────────────────────────────────────────────────────────────────────


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_matrices_begin_as_rotations(make: Callable[..., RecurrentNet], bidirectional: bool) -> None:
    cell = make(inputs=5, dim=8, depth=2, bidirectional=bidirectional)
    width = cell.net.hidden_size
    for name, weight in cell.net.named_parameters():
        for gate in weight.detach().split(width):
            if "weight_hh" in name:
                torch.testing.assert_close(gate @ gate.T, torch.eye(width), msg=name)
            elif "weight_ih" in name:
                assert 0 < gate.abs().max() <= (6 / (gate.shape[0] + gate.shape[1])) ** 0.5, name


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_forget_gate_of_an_lstm_begins_open(bidirectional: bool) -> None:
    cell = lstm(inputs=5, dim=6, depth=2, bidirectional=bidirectional)
    width = cell.net.hidden_size
    for suffix in ("l0", "l1", *(("l0_reverse", "l1_reverse") if bidirectional else ())):
        bias = cell.net.get_parameter(f"bias_ih_{suffix}") + cell.net.get_parameter(f"bias_hh_{suffix}")
        assert [gate.unique().tolist() for gate in bias.split(width)] == [[0], [1], [0], [0]]


@pytest.mark.parametrize("make", [plain, gru], ids=["tanh", "gru"])
def test_other_biases_begin_at_zero(make: Callable[..., RecurrentNet]) -> None:
    cell = make(inputs=5, dim=6, depth=2)
    assert not any(weight.any() for name, weight in cell.net.named_parameters() if "bias" in name)


# ── dropout and padding ───────────────────────────────────────────────────────────────────────────


@every_cell
@pytest.mark.parametrize("depth", [1, 2])
def test_dropout_falls_between_layers_and_only_in_training(make: Callable[..., RecurrentNet], depth: int) -> None:
    torch.manual_seed(0)
    cell = make(inputs=5, dim=6, depth=depth, dropout=0.5)
    x = torch.randn(3, 4, 5)
    state = cell.initial_state(torch.zeros(3, depth * cell.state_vectors * 6))
    acts: list[Callable[[], Tensor]] = [
        lambda: cell.whole(x, Places.of(x, None))[0],
        lambda: cell.step(cell.input_gates(x[:, 0]), state)[0],
    ]
    for act in acts:
        cell.train()
        assert torch.equal(act(), act()) == (depth == 1)
        cell.eval()
        assert torch.equal(act(), act())


@every_cell
@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_last_state_of_a_padded_row_is_that_of_its_last_real_place(
    make: Callable[..., RecurrentNet], bidirectional: bool
) -> None:
    torch.manual_seed(0)
    cell, lengths = shaken(make(inputs=5, dim=6, depth=2, bidirectional=bidirectional)), (4, 2, 1)
    x = torch.randn(3, 4, 5)
    _, together = cell.whole(x, Places.of(x, keeps(lengths)))
    for row, length in enumerate(lengths):
        own = x[[row], :length]
        _, alone = cell.whole(own, Places.of(own, None))
        for found, wanted in zip(tensors(together), tensors(alone), strict=True):
            torch.testing.assert_close(found[[row]], wanted)


# ── gradients ─────────────────────────────────────────────────────────────────────────────────────


@every_cell
def test_gradients_of_a_step(make: Callable[..., RecurrentNet]) -> None:
    torch.manual_seed(0)
    cell = shaken(make(inputs=2, dim=3, depth=2)).double()
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    start = torch.randn(2, 2 * cell.state_vectors * 3, dtype=torch.float64, requires_grad=True)

    def step(x: Tensor, start: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        y, state = cell.step(cell.input_gates(x), cell.initial_state(start))
        return (y, *tensors(state))

    assert torch.autograd.gradcheck(step, (x, start, *cell.parameters()))


DECODERS: dict[str, dict[str, Any]] = {
    "additive, before": {"cross": {"score": "additive"}},
    "multiplicative, after, fed": {
        "cell": "lstm",
        "cross": {"score": "multiplicative"},
        "attend": "after",
        "input_feeding": True,
        "readout": "attentional",
    },
    "covered": {"cross": {"score": "additive", "coverage": True}, "input_feeding": True},
    "sparse": {"cross": {"score": "reduced_rank", "normalizer": "sparsemax"}},
    "every step": {"cell": "tanh", "cross": "every_step", "readout": "plain"},
}


@pytest.mark.parametrize("kind", DECODERS)
def test_gradients_of_two_steps_of_a_decoder(kind: str) -> None:
    """Of all its weights, and of what it is told of the source, some of which is padding."""
    tree = {"dim": 2, "decoder": {"kind": "recurrent"} | DECODERS[kind], "encoder": "recurrent", "head": "linear"}
    torch.manual_seed(0)
    decoder: nn.Module = shaken(
        assemble(resolve(ModelConfig, [python_layer(tree)]).config, 5, 5).double().eval()
    ).decoder
    states = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    summary = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([[1, 4], [2, 3]])

    def steps(states: Tensor, summary: Tensor, *weights: Tensor) -> Tensor:
        memory = Memory(states, Places.of(states, keeps((3, 2))), summary)
        return decoder.step(tokens, decoder.start(memory, 2))[0]  # type: ignore[operator]

    assert torch.autograd.gradcheck(steps, (states, summary, *decoder.parameters()))
