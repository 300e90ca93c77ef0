"""Recurrent models against torch's own nets, and against decoders written step by step from the papers' formulas."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contracts.checks.common import padding_mask, perturbed
from saccade.config import python_layer, resolve
from saccade.data.batches import Batch, Corpus
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, assemble
from saccade.models.recurrent import RecurrentEncoder
from saccade.notes import capture
from saccade.parts import CELLS
from saccade.tasks.losses import next_token_loss

B, T, S, D, V = 3, 7, 5, 6, 13
LENGTHS = (S, 3, 1)
NETS: dict[str, type[nn.RNNBase]] = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}

every_cell = pytest.mark.parametrize("cell", NETS)


def test_all_cells_are_covered() -> None:
    assert NETS.keys() == CELLS.keys()


# ── the encoder ───────────────────────────────────────────────────────────────────────────────────


def torch_net(encoder: RecurrentEncoder, cell: str, depth: int, bidirectional: bool) -> nn.RNNBase:
    width = D // 2 if bidirectional else D
    net = NETS[cell](D, width, depth, batch_first=True, bidirectional=bidirectional)
    net.load_state_dict(encoder.cell.net.state_dict())  # type: ignore[attr-defined]
    return net


def last_states(last: Tensor | tuple[Tensor, Tensor], bidirectional: bool) -> Tensor:
    """h of the last layer of one row: forward, then backward."""
    h = last[0] if isinstance(last, tuple) else last
    return torch.cat([h[-2, 0], h[-1, 0]]) if bidirectional else h[-1, 0]


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["double", "float"])
def test_each_row_of_a_padded_batch_equals_torchs_net_on_the_unpadded_row(
    cell: str, bidirectional: bool, depth: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(D, Tokens(V), summary=True, cell=CELLS[cell], depth=depth, bidirectional=bidirectional)
    encoder = perturbed(encoder).to(dtype)
    net = torch_net(encoder, cell, depth, bidirectional).to(dtype)
    ids = torch.randint(V, (B, S))
    memory = encoder.encode(ids, padding_mask(LENGTHS))
    their_sums = []
    for row, length in enumerate(LENGTHS):
        x = encoder.embedding.table.weight.detach()[ids[[row], :length]] * math.sqrt(D)
        y, last = net(x)
        assert (memory.states[row, :length] - y[0]).abs().max() <= TOLERANCE[dtype]
        assert (memory.summary[row] - last_states(last, bidirectional)).abs().max() <= TOLERANCE[dtype]
        their_sums.append((y * torch.arange(1.0, D + 1)).sum())
    (memory.states[padding_mask(LENGTHS)] * torch.arange(1.0, D + 1)).sum().backward()
    torch.stack(their_sums).sum().backward()
    for name, weight in net.named_parameters():
        our_gradient = encoder.cell.net.get_parameter(name).grad  # type: ignore[attr-defined]
        scale = max(1.0, float(weight.grad.abs().max()))
        assert (our_gradient - weight.grad).abs().max() / scale <= 10 * TOLERANCE[dtype], name


# ── a step of a cell ──────────────────────────────────────────────────────────────────────────────


def torch_cells(cell: str, weights: Mapping[str, Tensor], depth: int) -> list[nn.RNNCellBase]:
    """One torch cell per layer with our weights."""
    layers = []
    for layer in range(depth):
        layer_cell = {"tanh": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}[cell](5 if layer == 0 else D, D)
        layer_cell.load_state_dict({name: weights[f"{name}_l{layer}"] for name in layer_cell.state_dict()})
        layers.append(layer_cell)
    return layers


@every_cell
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["double", "float"])
def test_steps_equal_those_of_torchs_cells(cell: str, depth: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours = perturbed(CELLS[cell](inputs=5, dim=D, depth=depth)).to(dtype)
    theirs = [layer.to(dtype) for layer in torch_cells(cell, ours.net.state_dict(), depth)]
    state = ours.initial_state(torch.randn(B, depth * ours.state_vectors * D, dtype=dtype))
    their_state = [layer if cell == "lstm" else layer[0] for layer in state]
    for _ in range(3):
        x = torch.randn(B, 5, dtype=dtype)
        y, state = ours.step(ours.input_gates(x), state)
        for layer, layer_cell in enumerate(theirs):
            their_state[layer] = layer_cell(x, their_state[layer])
            x = their_state[layer][0] if cell == "lstm" else their_state[layer]
            vectors = their_state[layer] if cell == "lstm" else (x,)
            for actual, expected in zip(state[layer], vectors, strict=True):
                assert (actual - expected).abs().max() <= TOLERANCE[dtype]
        assert (y - x).abs().max() <= TOLERANCE[dtype]


# ── decoders from the papers' formulas ────────────────────────────────────────────────────────────

Weights = Mapping[str, Tensor]
State = list[list[Tensor]]


def gru_step(w: Weights, layer: int, x: Tensor, state: list[Tensor]) -> list[Tensor]:
    (h,) = state
    of_x = x @ w[f"cell.net.weight_ih_l{layer}"].T + w[f"cell.net.bias_ih_l{layer}"]
    of_h = h @ w[f"cell.net.weight_hh_l{layer}"].T + w[f"cell.net.bias_hh_l{layer}"]
    (xr, xz, xn), (hr, hz, hn) = of_x.chunk(3, -1), of_h.chunk(3, -1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return [(1 - z) * torch.tanh(xn + r * hn) + z * h]


def lstm_step(w: Weights, layer: int, x: Tensor, state: list[Tensor]) -> list[Tensor]:
    h, c = state
    gates = x @ w[f"cell.net.weight_ih_l{layer}"].T + w[f"cell.net.bias_ih_l{layer}"]
    gates = gates + h @ w[f"cell.net.weight_hh_l{layer}"].T + w[f"cell.net.bias_hh_l{layer}"]
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c), c]


REFERENCE_CELLS = {"gru": (gru_step, 1), "lstm": (lstm_step, 2)}


def reference_cell(w: Weights, cell: str, x: Tensor, state: State) -> State:
    """One step of all layers."""
    new_state: State = []
    for layer, layer_state in enumerate(state):
        new_state.append(REFERENCE_CELLS[cell][0](w, layer, x if layer == 0 else new_state[-1][0], layer_state))
    return new_state


def reference_start(w: Weights, cell: str, summary: Tensor) -> State:
    """tanh(W summary + b), split into layers and each layer into h (and c)."""
    start = torch.tanh(summary @ w["initial.weight"].T + w["initial.bias"])
    state_vectors = REFERENCE_CELLS[cell][1]
    vectors = list(start.split(D, -1))
    return [vectors[i : i + state_vectors] for i in range(0, len(vectors), state_vectors)]


def masked_softmax(scores: Tensor, keep: Tensor) -> Tensor:
    """softmax over the positions that are not padding."""
    exponentials = scores.exp() * keep
    return exponentials / exponentials.sum(-1, keepdim=True)


Reference = tuple[list[Tensor], list[Tensor], Tensor]  # of each step: hidden states, attention weights; coverage loss
Paper = Callable[[Weights, str, Tensor, Tensor, Tensor, list[Tensor], Tensor], Reference]


def bahdanau(
    w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor
) -> Reference:
    """eᵢ = vᵀ tanh(W s + U hᵢ), c = Σ αᵢ hᵢ, s' = cell([y; c], s), t = tanh(O [s'; c; y] + b) (§A.1–A.2)."""
    state, hidden, maps = reference_start(w, cell, summary), [], []
    for y in words:
        query = state[-1][0] @ w["cross.score.query_weight"][0]
        e = torch.tanh(query[:, None] + h @ w["cross.score.key_weight"][0]) @ w["cross.score.out"][0, :, 0]
        maps.append(masked_softmax(e, keep))
        c = (maps[-1][..., None] * h).sum(1)
        state = reference_cell(w, cell, torch.cat([y, c], -1), state)
        deep = torch.cat([state[-1][0], c, y], -1)
        hidden.append(torch.tanh(deep @ w["readout.out.weight"].T + w["readout.out.bias"]))
    return hidden, maps, h.new_zeros(())


def luong(
    w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor
) -> Reference:
    """s = cell([y; s̃], s), score(s, hᵢ) = sᵀ W hᵢ, c = Σ αᵢ hᵢ, s̃ = tanh(O [s; c] + b) (§3.1, eq. 5, §3.3)."""
    state, fed, hidden, maps = reference_start(w, cell, summary), torch.zeros_like(summary), [], []
    for y in words:
        state = reference_cell(w, cell, torch.cat([y, fed], -1), state)
        s = state[-1][0]
        matrix = w["cross.score.out"][0].T
        e = torch.einsum("bi,ij,bsj->bs", s, matrix, h)
        maps.append(masked_softmax(e, keep))
        c = torch.einsum("bs,bsd->bd", maps[-1], h)
        fed = torch.tanh(torch.cat([s, c], -1) @ w["readout.out.weight"].T + w["readout.out.bias"])
        hidden.append(fed)
    return hidden, maps, h.new_zeros(())


def sutskever(
    w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor
) -> Reference:
    """s = cell(y, s), initialized from the source's last state; the hidden state is s."""
    state, hidden = reference_start(w, cell, summary), []
    for y in words:
        state = reference_cell(w, cell, y, state)
        hidden.append(state[-1][0])
    return hidden, [], h.new_zeros(())


def cho(
    w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor
) -> Reference:
    """s = cell([y; c], s), t = tanh(O [s; c; y] + b), with the same c at every step."""
    state, hidden = reference_start(w, cell, summary), []
    for y in words:
        state = reference_cell(w, cell, torch.cat([y, summary], -1), state)
        deep = torch.cat([state[-1][0], summary, y], -1)
        hidden.append(torch.tanh(deep @ w["readout.out.weight"].T + w["readout.out.bias"]))
    return hidden, [], h.new_zeros(())


def see_et_al(
    w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor
) -> Reference:
    """eᵢ = vᵀ tanh(W s + U hᵢ + w covᵢ), covᵢ = Σ of all earlier αᵢ; loss λ Σ min(αᵢ, covᵢ) (eqs. 10–12). Attention
    is after the cell, as in the paper."""
    state, hidden, maps = reference_start(w, cell, summary), [], []
    coverage, loss = torch.zeros_like(keep, dtype=h.dtype), h.new_zeros(())
    for t, y in enumerate(words):
        state = reference_cell(w, cell, y, state)
        s = state[-1][0]
        inner = (s @ w["cross.score.query_weight"][0])[:, None] + h @ w["cross.score.key_weight"][0]
        inner = inner + coverage[..., None] * w["cross.coverage_weight"]
        alpha = masked_softmax(torch.tanh(inner) @ w["cross.score.out"][0, :, 0], keep)
        loss = loss + LAMBDA * (torch.minimum(alpha, coverage).sum(-1) * real[:, t]).sum()
        coverage = coverage + alpha
        c = (alpha[..., None] * h).sum(1)
        hidden.append(torch.tanh(torch.cat([s, c], -1) @ w["readout.out.weight"].T + w["readout.out.bias"]))
        maps.append(alpha)
    return hidden, maps, loss


LAMBDA = 0.6
PAPERS: dict[str, tuple[Paper, dict[str, Any]]] = {
    "bahdanau": (bahdanau, {"cross": {"score": "additive"}, "attend": "before", "readout": "deep"}),
    "luong": (
        luong,
        {
            "cross": {"score": "multiplicative"},
            "attend": "after",
            "input_feeding": True,
            "readout": "attentional",
        },
    ),
    "sutskever": (sutskever, {"cross": "at_start", "readout": "plain"}),
    "cho": (cho, {"cross": "every_step", "readout": "deep"}),
    "see": (
        see_et_al,
        {
            "cross": {"score": "additive", "coverage": True, "coverage_loss": LAMBDA},
            "attend": "after",
            "readout": "attentional",
        },
    ),
}
NO_DROPOUT = {"attention": 0.0, "residual": 0.0, "feed_forward": 0.0, "embedding": 0.0}


def build_model(paper: str, cell: str, depth: int) -> Model:
    side = {"kind": "recurrent", "cell": cell, "depth": depth}
    tree = {
        "dim": D,
        "encoder": side,
        "decoder": side | PAPERS[paper][1],
        "head": "linear",
        "shared_embeddings": False,
        "dropout": NO_DROPOUT,
    }
    torch.manual_seed(0)
    return perturbed(assemble(resolve(ModelConfig, [python_layer(tree)]).config, Tokens(V), V)).double().train()


def batch_of_three() -> Batch:
    return Corpus([[4, 5, 6, 7], [8, 9], []], [[5, 7, 9, 11, 6, 8], [4, 12, 10], []]).batch([0, 1, 2])


def reference_outputs(model: Model, batch: Batch, paper: str, cell: str) -> tuple[Tensor, list[Tensor], Tensor]:
    """The hidden states [B T D], the attention weights [B S] of each step, and the training loss."""
    w = dict(model.decoder.named_parameters())  # type: ignore[union-attr]
    memory = model.encoder.encode(batch.source.values, batch.source.keep)
    assert batch.inputs is not None
    words = (w["embedding.table.weight"][batch.inputs.values] * math.sqrt(D)).unbind(1)
    real = batch.inputs.keep
    hidden_steps, maps, coverage_loss = PAPERS[paper][0](
        w, cell, memory.states, batch.source.keep, memory.summary, list(words), real
    )
    hidden = torch.stack(hidden_steps, 1)
    logits = hidden[real] @ model.head.out.weight.T + model.head.out.bias  # type: ignore[attr-defined]
    return hidden, maps, F.cross_entropy(logits, batch.outputs.values[real], reduction="sum") + coverage_loss


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("cell", REFERENCE_CELLS)
@pytest.mark.parametrize("depth", [1, 2])
def test_decoder_equals_the_formulas_of_its_paper(paper: str, cell: str, depth: int) -> None:
    """Hidden states, attention weights, the loss, and the gradient of every weight of decoder, encoder and head."""
    model, batch = build_model(paper, cell, depth), batch_of_three()
    assert batch.inputs is not None
    real = batch.inputs.keep
    expected, maps, expected_loss = reference_outputs(model, batch, paper, cell)
    expected_loss.backward()
    expected_gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    with capture(model) as captured:
        memory = model.encoder.encode(batch.source.values, batch.source.keep)
        actual, _ = model.decoder.step(batch.inputs.values, model.decoder.start(memory, B), batch.inputs.keep)
    torch.testing.assert_close(actual[real], expected[real], atol=1e-12, rtol=0)
    assert set(captured) == ({"decoder.cross"} if maps else set())
    if maps:
        weights = captured["decoder.cross"][:, 0]
        torch.testing.assert_close(weights[real], torch.stack(maps, 1)[real], atol=1e-12, rtol=0)
    model.zero_grad()
    loss = next_token_loss(model, batch)
    torch.testing.assert_close(loss.total, expected_loss)
    loss.total.backward()
    for name, weight in model.named_parameters():
        gradient = expected_gradients[name]
        torch.testing.assert_close(weight.grad, gradient, atol=1e-10, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
        assert gradient.any(), f"the gradient of {name} is zero, so the comparison would test nothing"


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("cell", REFERENCE_CELLS)
def test_decoder_called_step_by_step_equals_the_formulas_of_its_paper(paper: str, cell: str) -> None:
    """One token per call, as in search."""
    model, batch = build_model(paper, cell, 2).eval(), batch_of_three()
    assert batch.inputs is not None
    real = batch.inputs.keep
    with torch.no_grad():
        expected, _, _ = reference_outputs(model, batch, paper, cell)
        state = model.decoder.start(model.encoder.encode(batch.source.values, batch.source.keep), B)
        steps = []
        for tokens in batch.inputs.values.split(1, 1):
            hidden, state = model.decoder.step(tokens, state)
            steps.append(hidden)
    torch.testing.assert_close(torch.cat(steps, 1)[real], expected[real], atol=1e-12, rtol=0)


@pytest.mark.parametrize("cell", REFERENCE_CELLS)
def test_coverage_loss_equals_that_of_see_et_al(cell: str) -> None:
    model, batch = build_model("see", cell, 1), batch_of_three()
    without_coverage_loss = next_token_loss(model.eval(), batch)
    loss = next_token_loss(model.train(), batch)
    _, _, expected_loss = reference_outputs(model, batch, "see", cell)
    assert loss.logged["cost"] == pytest.approx(without_coverage_loss.logged["cost"])
    assert loss.logged["decoder.cross"] == pytest.approx(
        float(expected_loss.detach()) - without_coverage_loss.logged["cost"]
    )
    assert loss.logged["decoder.cross"] > 0.1
