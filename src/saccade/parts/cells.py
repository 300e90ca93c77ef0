"""Cells: recurrent nets. Torch's fused implementations run whole sequences; `step` takes one step in Python.

A cell of `depth` layers is built over `inputs` numbers a step and has `dim` outputs: with `bidirectional` half of them
read from right to left. Its state is a tuple over layers of tuples of tensors [B D], so that search can select rows.

- `whole(x, places, state | None) → (y, state)`: packed where there is padding, so that padding changes nothing.
- `from_input(x) → g`: what the input says to the first layer, for many steps at once (`x` may be a part of the input's
  columns, from `first`).
- `step(g, state) → (y, state)`: one step of all layers.
- `begin(h) → state`: from one vector [B depth·parts·D].
"""

from collections.abc import Callable
from typing import Annotated, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from saccade.config import Slot
from saccade.errors import BuildError
from saccade.parts.dropout import Dropout
from saccade.places import Places
from saccade.shapes import Float, States

CellState = tuple[tuple[Float[Tensor, "B W"], ...], ...]
Vectors = Float[Tensor, "B W"]


class Cell(Protocol):
    """The contract of a cell. `parts`: how many vectors make the state of a layer."""

    state_vectors: int
    backward_width: int

    def whole(
        self, x: Float[Tensor, "B T I"], places: Places, state: CellState | None = None
    ) -> tuple[States, CellState]: ...
    def input_gates(self, x: Float[Tensor, "*n I"], first: int = 0) -> Float[Tensor, "*n G"]: ...
    def step(self, given: Float[Tensor, "B G"], state: CellState) -> tuple[Vectors, CellState]: ...
    def initial_state(self, start: Float[Tensor, "B n"]) -> CellState: ...


RNN_WEIGHT_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # torch's names of a layer's, less its number
CellStep = Callable[[Tensor, tuple[Tensor, ...], Tensor, Tensor], tuple[Tensor, ...]]


class RecurrentNet(nn.Module):
    """A net of torch, and how a layer of it takes a step: `point(what its input says, state, weight_hh, bias_hh)`."""

    def __init__(self, net: nn.RNNBase, point: CellStep, state_vectors: int):
        super().__init__()
        _begin(net)
        self.net, self.point, self.state_vectors = net, point, state_vectors
        self.dropout = Dropout(net.dropout)
        self.backward_width = net.hidden_size if net.bidirectional else 0
        self.names = [[f"{name}_l{layer}" for name in RNN_WEIGHT_NAMES] for layer in range(net.num_layers)]

    def whole(
        self, x: Float[Tensor, "B T I"], places: Places, state: CellState | None = None
    ) -> tuple[States, CellState]:
        stacked = None if state is None else self._stacked(state)
        if not places.padded:
            y, last = self.net(x, stacked)
            return y, self._unstacked(last)
        lengths = places.keep.sum(1).clamp(min=1).cpu()  # a row of nothing still needs a step
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, last = self.net(packed, stacked)
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        return y, self._unstacked(last)

    def initial_state(self, start: Float[Tensor, "B n"]) -> CellState:
        vectors = start.split(self.net.hidden_size, -1)
        return tuple(tuple(vectors[i : i + self.state_vectors]) for i in range(0, len(vectors), self.state_vectors))

    def input_gates(self, x: Float[Tensor, "*n I"], first: int = 0) -> Float[Tensor, "*n G"]:
        weight, _, bias, _ = self._layer(0)
        return F.linear(x, weight[:, first : first + x.shape[-1]], None if first else bias)

    def step(self, given: Float[Tensor, "B G"], state: CellState) -> tuple[Vectors, CellState]:
        after: list[tuple[Tensor, ...]] = []
        for number, before in enumerate(state):
            weight_ih, weight_hh, bias_ih, bias_hh = self._layer(number)
            if number:
                given = F.linear(self.dropout(after[-1][0]), weight_ih, bias_ih)
            after.append(self.point(given, before, weight_hh, bias_hh))
        return after[-1][0], tuple(after)

    def _layer(self, number: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # by the names themselves: at each step of a search, get_parameter's checks cost more than an addition
        return tuple(getattr(self.net, name) for name in self.names[number])  # type: ignore[return-value]

    def _stacked(self, state: CellState) -> Tensor | tuple[Tensor, ...]:
        parts = tuple(torch.stack([layer[part] for layer in state]) for part in range(self.state_vectors))
        return parts[0] if self.state_vectors == 1 else parts

    def _unstacked(self, last: Tensor | tuple[Tensor, ...]) -> CellState:
        parts = (last,) if isinstance(last, Tensor) else last
        return tuple(zip(*(part.unbind(0) for part in parts), strict=True))


def _begin(net: nn.RNNBase) -> None:
    """Recurrent matrices begin as rotations, which neither shrink nor stretch (Saxe, McClelland & Ganguli 2014)."""
    for name, weight in net.named_parameters():
        for gate in weight.detach().split(net.hidden_size):
            if "weight_hh" in name:
                nn.init.orthogonal_(gate)
            elif "weight_ih" in name:
                nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(gate)


def _sizes(inputs: int, dim: int, depth: int, bidirectional: bool, dropout: float) -> dict[str, Any]:
    """The words of torch."""
    if bidirectional and dim % 2:
        raise BuildError(f"half of the width {dim} reads backwards, and {dim} is odd", ("bidirectional",))
    return {
        "input_size": inputs,
        "hidden_size": dim // 2 if bidirectional else dim,
        "num_layers": depth,
        "batch_first": True,
        "bidirectional": bidirectional,
        "dropout": dropout if depth > 1 else 0.0,  # it falls between layers
    }


def tanh(inputs: int, dim: int, depth: int = 1, bidirectional: bool = False, dropout: float = 0.0) -> RecurrentNet:
    """h' = tanh(W x + U h + b) (Elman 1990)."""
    return RecurrentNet(nn.RNN(**_sizes(inputs, dim, depth, bidirectional, dropout)), _tanh_point, state_vectors=1)


def gru(inputs: int, dim: int, depth: int = 1, bidirectional: bool = False, dropout: float = 0.0) -> RecurrentNet:
    """r, z = σ(W x + U h + b); n = tanh(W x + b + r ⊙ (U h + b)); h' = (1 − z) ⊙ n + z ⊙ h (Cho et al. 2014, as torch
    has it)."""
    return RecurrentNet(nn.GRU(**_sizes(inputs, dim, depth, bidirectional, dropout)), _gru_point, state_vectors=1)


def lstm(inputs: int, dim: int, depth: int = 1, bidirectional: bool = False, dropout: float = 0.0) -> RecurrentNet:
    """i, f, o = σ(W x + U h + b); g = tanh(W x + U h + b); c' = f ⊙ c + i ⊙ g; h' = o ⊙ tanh(c') (Hochreiter &
    Schmidhuber 1997; Gers, Schmidhuber & Cummins 2000). The forget gate begins open (Józefowicz et al. 2015)."""
    net = nn.LSTM(**_sizes(inputs, dim, depth, bidirectional, dropout))
    cell = RecurrentNet(net, _lstm_point, state_vectors=2)
    for name, weight in net.named_parameters():
        if name.startswith("bias_ih"):
            weight.detach()[net.hidden_size : 2 * net.hidden_size] = 1.0
    return cell


def _tanh_point(given: Tensor, state: tuple[Tensor, ...], weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    return (torch.tanh(given + F.linear(state[0], weight, bias)),)


def _gru_point(given: Tensor, state: tuple[Tensor, ...], weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    (h,) = state
    width = h.shape[-1]
    own = F.linear(h, weight, bias)
    gates = torch.sigmoid(given[:, : 2 * width] + own[:, : 2 * width])
    new = torch.tanh(torch.addcmul(given[:, 2 * width :], gates[:, :width], own[:, 2 * width :]))
    return (torch.lerp(new, h, gates[:, width:]),)


def _lstm_point(given: Tensor, state: tuple[Tensor, ...], weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    h, c = state
    i, f, g, o = (given + F.linear(h, weight, bias)).chunk(4, -1)
    c = torch.addcmul(torch.sigmoid(f) * c, torch.sigmoid(i), torch.tanh(g))
    return torch.sigmoid(o) * torch.tanh(c), c


CELLS: dict[str, Callable[..., nn.Module]] = {"gru": gru, "lstm": lstm, "tanh": tanh}

CellSlot = Annotated[Callable[..., nn.Module], Slot(CELLS)]
