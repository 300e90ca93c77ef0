"""The recurrent family against torch's own nets, and against decoders unrolled by hand from the papers' formulas."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contracts.checks.common import perturbed
from saccade.config import python_layer, resolve
from saccade.data.batches import Batch, Corpus
from saccade.models.assemble import Model, ModelConfig, assemble
from saccade.models.recurrent import RecurrentEncoder
from saccade.notes import capture
from saccade.parts import CELLS
from saccade.tasks.losses import next_token

B, T, S, D, V = 3, 7, 5, 6, 13
LENGTHS = (S, 3, 1)
NETS: dict[str, type[nn.RNNBase]] = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5}

every_cell = pytest.mark.parametrize("cell", NETS)


def test_every_cell_is_here() -> None:
    assert NETS.keys() == CELLS.keys()


def keeps(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


# ── the encoder ───────────────────────────────────────────────────────────────────────────────────


def their_net(encoder: RecurrentEncoder, cell: str, depth: int, bidirectional: bool) -> nn.RNNBase:
    width = D // 2 if bidirectional else D
    net = NETS[cell](D, width, depth, batch_first=True, bidirectional=bidirectional)
    net.load_state_dict(encoder.cell.net.state_dict())  # type: ignore[attr-defined]
    return net


def last_states(last: Tensor | tuple[Tensor, Tensor], bidirectional: bool) -> Tensor:
    """h of the last layer, forward then backward, of one row."""
    h = last[0] if isinstance(last, tuple) else last
    return torch.cat([h[-2, 0], h[-1, 0]]) if bidirectional else h[-1, 0]


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("dtype", CLOSE, ids=["double", "float"])
def test_a_padded_row_is_what_torch_makes_of_it_alone(
    cell: str, bidirectional: bool, depth: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(D, vocabulary=V, cell=CELLS[cell], depth=depth, bidirectional=bidirectional)
    encoder = perturbed(encoder).to(dtype)
    net = their_net(encoder, cell, depth, bidirectional).to(dtype)
    ids = torch.randint(V, (B, S))
    memory = encoder.encode(ids, keeps(*LENGTHS))
    theirs = []
    for row, length in enumerate(LENGTHS):
        x = encoder.embedding.table.weight.detach()[ids[[row], :length]] * math.sqrt(D)
        y, last = net(x)
        assert (memory.states[row, :length] - y[0]).abs().max() <= CLOSE[dtype]
        assert (memory.summary[row] - last_states(last, bidirectional)).abs().max() <= CLOSE[dtype]
        theirs.append((y * torch.arange(1.0, D + 1)).sum())
    (memory.states[keeps(*LENGTHS)] * torch.arange(1.0, D + 1)).sum().backward()
    torch.stack(theirs).sum().backward()
    for name, weight in net.named_parameters():
        mine = encoder.cell.net.get_parameter(name).grad  # type: ignore[attr-defined]
        size = max(1.0, float(weight.grad.abs().max()))
        assert (mine - weight.grad).abs().max() / size <= 10 * CLOSE[dtype], name


# ── a step of a cell ──────────────────────────────────────────────────────────────────────────────


def their_steps(cell: str, weights: Mapping[str, Tensor], depth: int) -> list[nn.RNNCellBase]:
    made = []
    for layer in range(depth):
        one = {"tanh": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}[cell](5 if layer == 0 else D, D)
        one.load_state_dict({name: weights[f"{name}_l{layer}"] for name in one.state_dict()})
        made.append(one)
    return made


@every_cell
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("dtype", CLOSE, ids=["double", "float"])
def test_a_step_is_that_of_torchs_cells(cell: str, depth: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours = perturbed(CELLS[cell](inputs=5, dim=D, depth=depth)).to(dtype)
    theirs = [one.to(dtype) for one in their_steps(cell, ours.net.state_dict(), depth)]
    state = ours.initial_state(torch.randn(B, depth * ours.state_vectors * D, dtype=dtype))
    their_state = [layer if cell == "lstm" else layer[0] for layer in state]
    for _ in range(3):
        x = torch.randn(B, 5, dtype=dtype)
        y, state = ours.step(ours.input_gates(x), state)
        for layer, one in enumerate(theirs):
            their_state[layer] = one(x, their_state[layer])
            x = their_state[layer][0] if cell == "lstm" else their_state[layer]
            parts = their_state[layer] if cell == "lstm" else (x,)
            for found, wanted in zip(state[layer], parts, strict=True):
                assert (found - wanted).abs().max() <= CLOSE[dtype]
        assert (y - x).abs().max() <= CLOSE[dtype]


# ── decoders by hand ──────────────────────────────────────────────────────────────────────────────

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


STEPS = {"gru": (gru_step, 1), "lstm": (lstm_step, 2)}


def hand_cell(w: Weights, cell: str, x: Tensor, state: State) -> State:
    """All layers, from the bottom to the top."""
    after: State = []
    for layer, before in enumerate(state):
        after.append(STEPS[cell][0](w, layer, x if layer == 0 else after[-1][0], before))
    return after


def hand_start(w: Weights, cell: str, summary: Tensor) -> State:
    """tanh(W summary + b), cut into layers and each layer into h (and c)."""
    first = torch.tanh(summary @ w["initial.weight"].T + w["initial.bias"])
    parts = STEPS[cell][1]
    vectors = list(first.split(D, -1))
    return [vectors[i : i + parts] for i in range(0, len(vectors), parts)]


def over(scores: Tensor, keep: Tensor) -> Tensor:
    """softmax over the real places."""
    odds = scores.exp() * keep
    return odds / odds.sum(-1, keepdim=True)


Said = tuple[list[Tensor], list[Tensor], Tensor]  # hidden states, weights, a loss of its own
Hand = Callable[[Weights, str, Tensor, Tensor, Tensor, list[Tensor], Tensor], Said]


def bahdanau(
    w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor
) -> Said:
    """eᵢ = vᵀ tanh(W s + U hᵢ), c = Σ αᵢ hᵢ, s' = cell([y; c], s), t = tanh(O [s'; c; y] + b) (§A.1–A.2)."""
    state, said, maps = hand_start(w, cell, summary), [], []
    for y in words:
        asked = state[-1][0] @ w["cross.score.query_weight"][0]
        e = torch.tanh(asked[:, None] + h @ w["cross.score.key_weight"][0]) @ w["cross.score.out"][0, :, 0]
        maps.append(over(e, keep))
        c = (maps[-1][..., None] * h).sum(1)
        state = hand_cell(w, cell, torch.cat([y, c], -1), state)
        deep = torch.cat([state[-1][0], c, y], -1)
        said.append(torch.tanh(deep @ w["readout.out.weight"].T + w["readout.out.bias"]))
    return said, maps, h.new_zeros(())


def luong(w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor) -> Said:
    """s = cell([y; s̃], s), score(s, hᵢ) = sᵀ W hᵢ, c = Σ αᵢ hᵢ, s̃ = tanh(O [s; c] + b) (§3.1, eq. 5, §3.3)."""
    state, fed, said, maps = hand_start(w, cell, summary), torch.zeros_like(summary), [], []
    for y in words:
        state = hand_cell(w, cell, torch.cat([y, fed], -1), state)
        s = state[-1][0]
        form = w["cross.score.out"][0].T
        e = torch.einsum("bi,ij,bsj->bs", s, form, h)
        maps.append(over(e, keep))
        c = torch.einsum("bs,bsd->bd", maps[-1], h)
        fed = torch.tanh(torch.cat([s, c], -1) @ w["readout.out.weight"].T + w["readout.out.bias"])
        said.append(fed)
    return said, maps, h.new_zeros(())


def sutskever(
    w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor
) -> Said:
    """s = cell(y, s) from the source's last state, and s is what is said."""
    state, said = hand_start(w, cell, summary), []
    for y in words:
        state = hand_cell(w, cell, y, state)
        said.append(state[-1][0])
    return said, [], h.new_zeros(())


def cho(w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor) -> Said:
    """s = cell([y; c], s), t = tanh(O [s; c; y] + b), with the same c at every step."""
    state, said = hand_start(w, cell, summary), []
    for y in words:
        state = hand_cell(w, cell, torch.cat([y, summary], -1), state)
        deep = torch.cat([state[-1][0], summary, y], -1)
        said.append(torch.tanh(deep @ w["readout.out.weight"].T + w["readout.out.bias"]))
    return said, [], h.new_zeros(())


def see(w: Weights, cell: str, h: Tensor, keep: Tensor, summary: Tensor, words: list[Tensor], real: Tensor) -> Said:
    """eᵢ = vᵀ tanh(W s + U hᵢ + w covᵢ), covᵢ = Σ of all earlier αᵢ; loss λ Σ min(αᵢ, covᵢ) (eqs. 10–12); after the
    cell, as there."""
    state, said, maps = hand_start(w, cell, summary), [], []
    covered, loss = torch.zeros_like(keep, dtype=h.dtype), h.new_zeros(())
    for t, y in enumerate(words):
        state = hand_cell(w, cell, y, state)
        s = state[-1][0]
        inner = (s @ w["cross.score.query_weight"][0])[:, None] + h @ w["cross.score.key_weight"][0]
        inner = inner + covered[..., None] * w["cross.coverage_weight"]
        alpha = over(torch.tanh(inner) @ w["cross.score.out"][0, :, 0], keep)
        loss = loss + LAMBDA * (torch.minimum(alpha, covered).sum(-1) * real[:, t]).sum()
        covered = covered + alpha
        c = (alpha[..., None] * h).sum(1)
        said.append(torch.tanh(torch.cat([s, c], -1) @ w["readout.out.weight"].T + w["readout.out.bias"]))
        maps.append(alpha)
    return said, maps, loss


LAMBDA = 0.6
PAPERS: dict[str, tuple[Hand, dict[str, Any]]] = {
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
        see,
        {
            "cross": {"score": "additive", "coverage": True, "coverage_loss": LAMBDA},
            "attend": "after",
            "readout": "attentional",
        },
    ),
}
NO_DROPOUT = {"attention": 0.0, "residual": 0.0, "feed_forward": 0.0, "embedding": 0.0}


def made(paper: str, cell: str, depth: int) -> Model:
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
    return perturbed(assemble(resolve(ModelConfig, [python_layer(tree)]).config, V, V)).double().train()


def batch_of_three() -> Batch:
    return Corpus([[4, 5, 6, 7], [8, 9], []], [[5, 7, 9, 11, 6, 8], [4, 12, 10], []]).batch([0, 1, 2])


def by_hand(model: Model, batch: Batch, paper: str, cell: str) -> tuple[Tensor, list[Tensor], Tensor]:
    """Hidden states [B T D], maps [B S] of each step, and the whole loss."""
    w = dict(model.decoder.named_parameters())  # type: ignore[union-attr]
    memory = model.encoder.encode(batch.source.values, batch.source.keep)
    assert batch.inputs is not None
    words = (w["embedding.table.weight"][batch.inputs.values] * math.sqrt(D)).unbind(1)
    real = batch.inputs.keep
    said, maps, own = PAPERS[paper][0](w, cell, memory.states, batch.source.keep, memory.summary, list(words), real)
    hidden = torch.stack(said, 1)
    logits = hidden[real] @ model.head.out.weight.T + model.head.out.bias  # type: ignore[attr-defined]
    return hidden, maps, F.cross_entropy(logits, batch.outputs.values[real], reduction="sum") + own


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("cell", STEPS)
@pytest.mark.parametrize("depth", [1, 2])
def test_a_decoder_is_the_papers_unrolled_by_hand(paper: str, cell: str, depth: int) -> None:
    """Hidden states, attention maps, the loss, and the gradient of every weight of decoder, encoder and head."""
    model, batch = made(paper, cell, depth), batch_of_three()
    assert batch.inputs is not None
    real = batch.inputs.keep
    wanted, maps, their_loss = by_hand(model, batch, paper, cell)
    their_loss.backward()
    theirs = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    with capture(model) as heard:
        memory = model.encoder.encode(batch.source.values, batch.source.keep)
        found, _ = model.decoder.step(batch.inputs.values, model.decoder.start(memory, B), batch.inputs.keep)
    torch.testing.assert_close(found[real], wanted[real], atol=1e-12, rtol=0)
    assert set(heard) == ({"decoder.cross"} if maps else set())
    if maps:
        torch.testing.assert_close(heard["decoder.cross"][:, 0][real], torch.stack(maps, 1)[real], atol=1e-12, rtol=0)
    model.zero_grad()
    loss = next_token(model, batch, 0.0)
    torch.testing.assert_close(loss.total, their_loss)
    loss.total.backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, theirs[name], atol=1e-10, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
        assert theirs[name].any(), f"{name} learns nothing: nothing was tested"


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("cell", STEPS)
def test_one_step_at_a_time_it_is_the_papers_too(paper: str, cell: str) -> None:
    """As search calls it: one token, then the next."""
    model, batch = made(paper, cell, 2).eval(), batch_of_three()
    assert batch.inputs is not None
    real = batch.inputs.keep
    with torch.no_grad():
        wanted, _, _ = by_hand(model, batch, paper, cell)
        state = model.decoder.start(model.encoder.encode(batch.source.values, batch.source.keep), B)
        said = []
        for tokens in batch.inputs.values.split(1, 1):
            hidden, state = model.decoder.step(tokens, state)
            said.append(hidden)
    torch.testing.assert_close(torch.cat(said, 1)[real], wanted[real], atol=1e-12, rtol=0)


@pytest.mark.parametrize("cell", STEPS)
def test_the_cost_of_looking_twice_is_that_of_see_et_al(cell: str) -> None:
    model, batch = made("see", cell, 1), batch_of_three()
    plain = next_token(model.eval(), batch, 0.0)
    whole = next_token(model.train(), batch, 0.0)
    _, _, their_loss = by_hand(model, batch, "see", cell)
    assert whole.logged["cost"] == pytest.approx(plain.logged["cost"])
    assert whole.logged["decoder.cross"] == pytest.approx(float(their_loss.detach()) - plain.logged["cost"])
    assert whole.logged["decoder.cross"] > 0.1
