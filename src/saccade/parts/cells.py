"""Cells: recurrent nets. torch's fused kernels run whole sequences; `step` computes one step with plain operations.

A cell has `depth` layers, reads inputs of width `inputs` and has outputs of width `dim`; if it is bidirectional, half
of the outputs come from a net that runs from right to left. The state is a tuple with one entry per layer (and
direction), each a tuple of `state_vectors` tensors [B W], so that search can select its rows. W is `dim`, or half of it
if the cell is bidirectional.

- `whole(x, places, state | None) → (y, state)`: a whole sequence. Padded rows are packed, so padding has no influence;
  padding before a token is refused.
- `input_gates(x, first) → gates`: the input's contribution to the gates of the first layer, for any number of steps at
  once. `x` may be only some columns of the input, from column `first` on; the contributions of all columns add up.
- `step(gates, state) → (y, state)`: one step of all layers.
- `initial_state(start) → state`: the state from one vector per row [B depth·state_vectors·W].
"""

from collections.abc import Callable
from typing import Annotated, Any, Protocol, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from saccade.config import Slot
from saccade.devices import full_precision, is_mixed
from saccade.errors import BuildError, SaccadeError
from saccade.parts.dropout import Dropout
from saccade.places import Places
from saccade.shapes import Float, States

CellState = tuple[tuple[Float[Tensor, "B W"], ...], ...]
Vectors = Float[Tensor, "B W"]


class Cell(Protocol):
    """The contract of a cell. `state_vectors`: how many vectors make up the state of a layer. `backward_width`: how
    many of the output's columns come from the net that runs from right to left (the last ones)."""

    state_vectors: int
    backward_width: int

    def whole(
        self, x: Float[Tensor, "B T I"], places: Places, state: CellState | None = None
    ) -> tuple[States, CellState]: ...
    def input_gates(self, x: Float[Tensor, "*n I"], first: int = 0) -> Float[Tensor, "*n G"]: ...
    def step(self, gates: Float[Tensor, "B G"], state: CellState) -> tuple[Vectors, CellState]: ...
    def initial_state(self, start: Float[Tensor, "B n"]) -> CellState: ...


RNN_WEIGHT_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # torch's names, without the layer's suffix
# one layer, one step: (input's contribution to the gates, state, weight_hh, bias_hh) → state
CellStep = Callable[[Tensor, tuple[Tensor, ...], Tensor, Tensor], tuple[Tensor, ...]]


class RecurrentNet(nn.Module):
    """A recurrent net of torch, with `cell_step` to compute one step of one of its layers. In mixed precision its state
    and its products stay float32: rounding errors would add up over the steps."""

    def __init__(self, net: nn.RNNBase, cell_step: CellStep, state_vectors: int):
        super().__init__()
        _init_weights(net)
        self.net, self.cell_step, self.state_vectors = net, cell_step, state_vectors
        self.dropout = Dropout(net.dropout)
        self.backward_width = net.hidden_size if net.bidirectional else 0
        self.weight_names = [[f"{name}_l{layer}" for name in RNN_WEIGHT_NAMES] for layer in range(net.num_layers)]

    def whole(
        self, x: Float[Tensor, "B T I"], places: Places, state: CellState | None = None
    ) -> tuple[States, CellState]:
        if is_mixed(x):
            with full_precision(x):
                return self.whole(x.float(), places, None if state is None else _float32(state))
        stacked = None if state is None else self._stacked(state)
        # torch's net can only draw from the global generator
        net = self._layer_by_layer if self.dropout.drops and self.dropout.generator else self.net
        if not places.padded:
            y, last = net(x, stacked)
            return y, self._unstacked(last)
        check_padding(places)
        lengths = places.keep.sum(1).clamp(min=1).cpu()  # torch cannot pack a row of length 0
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, last = net(packed, stacked)
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        return y, self._unstacked(last)

    def _layer_by_layer(self, x: Any, state: Tensor | tuple[Tensor, ...] | None) -> tuple[Any, Any]:
        """`self.net(x, state)` with the dropout between the layers drawn from the generator of this replica."""
        ends = []
        for layer in range(self.net.num_layers):
            if layer:
                x = x._replace(data=self.dropout(x.data)) if isinstance(x, PackedSequence) else self.dropout(x)
            x, end = self._layer_net(layer)(x, self._layer_state(state, layer))
            ends.append((end,) if isinstance(end, Tensor) else end)
        last = tuple(torch.cat(vectors) for vectors in zip(*ends, strict=True))
        return x, last[0] if self.state_vectors == 1 else last

    def _layer_net(self, layer: int) -> nn.RNNBase:
        """A net of one layer with the weights of this layer."""
        size = self.net.input_size if layer == 0 else getattr(self.net, f"weight_ih_l{layer}").shape[1]
        make = cast(Callable[..., nn.RNNBase], type(self.net))
        options = {"batch_first": True, "bidirectional": self.net.bidirectional, "device": "meta"}
        net = make(size, self.net.hidden_size, **options)
        for name, _ in [*net.named_parameters()]:
            setattr(net, name, getattr(self.net, name.replace("_l0", f"_l{layer}")))
        return net

    def _layer_state(self, state: Tensor | tuple[Tensor, ...] | None, layer: int) -> Any:
        """The part of torch's state that belongs to a layer."""
        if state is None:
            return None
        directions = 2 if self.net.bidirectional else 1
        vectors = (state,) if isinstance(state, Tensor) else state
        own = tuple(vector[directions * layer : directions * (layer + 1)] for vector in vectors)
        return own[0] if self.state_vectors == 1 else own

    def initial_state(self, start: Float[Tensor, "B n"]) -> CellState:
        vectors = start.split(self.net.hidden_size, -1)
        return tuple(tuple(vectors[i : i + self.state_vectors]) for i in range(0, len(vectors), self.state_vectors))

    def input_gates(self, x: Float[Tensor, "*n I"], first: int = 0) -> Float[Tensor, "*n G"]:
        weight, _, bias, _ = self._weights(0)
        return F.linear(x, weight[:, first : first + x.shape[-1]], None if first else bias)

    def step(self, gates: Float[Tensor, "B G"], state: CellState) -> tuple[Vectors, CellState]:
        if is_mixed(gates):
            with full_precision(gates):
                return self.step(gates.float(), _float32(state))
        new_state: list[tuple[Tensor, ...]] = []
        for layer, layer_state in enumerate(state):
            weight_ih, weight_hh, bias_ih, bias_hh = self._weights(layer)
            if layer:
                gates = F.linear(self.dropout(new_state[-1][0]), weight_ih, bias_ih)
            new_state.append(self.cell_step(gates, layer_state, weight_hh, bias_hh))
        return new_state[-1][0], tuple(new_state)

    def _weights(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # getattr and not get_parameter: in each step of a search the checks of get_parameter cost more than an addition
        weight_ih, weight_hh, bias_ih, bias_hh = (getattr(self.net, name) for name in self.weight_names[layer])
        return weight_ih, weight_hh, bias_ih, bias_hh

    def _stacked(self, state: CellState) -> Tensor | tuple[Tensor, ...]:
        """Our state as torch's: one tensor [layers B D] per state vector."""
        vectors = tuple(torch.stack([layer[i] for layer in state]) for i in range(self.state_vectors))
        return vectors[0] if self.state_vectors == 1 else vectors

    def _unstacked(self, last: Tensor | tuple[Tensor, ...]) -> CellState:
        vectors = (last,) if isinstance(last, Tensor) else last
        return tuple(zip(*(vector.unbind(0) for vector in vectors), strict=True))


def check_padding(places: Places) -> None:
    """Refuse padding before a token: a recurrent net would read it."""
    if not places.padded_on_the_right:
        raise SaccadeError("recurrent nets need the padding of a batch on the right: pad each row after its last token")


def _float32(state: CellState) -> CellState:
    return tuple(tuple(vector.float() for vector in layer) for layer in state)


def _init_weights(net: nn.RNNBase) -> None:
    """Orthogonal recurrent matrices, which neither shrink nor stretch the state (Saxe, McClelland & Ganguli 2014),
    Xavier-uniform input matrices and zero biases, each gate by itself."""
    for name, weight in net.named_parameters():
        for gate in weight.detach().split(net.hidden_size):
            if "weight_hh" in name:
                nn.init.orthogonal_(gate)
            elif "weight_ih" in name:
                nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(gate)


_Net = TypeVar("_Net", bound=nn.RNNBase)


def _net(net: Callable[..., _Net], inputs: int, dim: int, depth: int, bidirectional: bool, dropout: float) -> _Net:
    """A net of torch with outputs of width `dim`."""
    if bidirectional and dim % 2:
        raise BuildError(
            f"a bidirectional encoder gives each direction half of model.dim, but {dim} is odd; use an even model.dim "
            "or model.encoder.bidirectional = false"
        )
    return net(
        input_size=inputs,
        hidden_size=dim // 2 if bidirectional else dim,
        num_layers=depth,
        batch_first=True,
        bidirectional=bidirectional,
        dropout=dropout if depth > 1 else 0.0,  # torch applies it between layers and warns if there is only one
    )


def tanh(inputs: int, dim: int, depth: int = 1, bidirectional: bool = False, dropout: float = 0.0) -> RecurrentNet:
    """h' = tanh(W x + U h + b) (Elman 1990)."""
    return RecurrentNet(_net(nn.RNN, inputs, dim, depth, bidirectional, dropout), _tanh_step, state_vectors=1)


def gru(inputs: int, dim: int, depth: int = 1, bidirectional: bool = False, dropout: float = 0.0) -> RecurrentNet:
    """r, z = σ(W x + U h + b); n = tanh(W x + b + r ⊙ (U h + b)); h' = (1 − z) ⊙ n + z ⊙ h (Cho et al. 2014, in torch's
    version)."""
    return RecurrentNet(_net(nn.GRU, inputs, dim, depth, bidirectional, dropout), _gru_step, state_vectors=1)


def lstm(inputs: int, dim: int, depth: int = 1, bidirectional: bool = False, dropout: float = 0.0) -> RecurrentNet:
    """i, f, o = σ(W x + U h + b); g = tanh(W x + U h + b); c' = f ⊙ c + i ⊙ g; h' = o ⊙ tanh(c') (Hochreiter &
    Schmidhuber 1997; Gers, Schmidhuber & Cummins 2000). The forget gate's bias is initialized to 1 (Józefowicz et al.
    2015)."""
    net = _net(nn.LSTM, inputs, dim, depth, bidirectional, dropout)
    cell = RecurrentNet(net, _lstm_step, state_vectors=2)
    for name, weight in net.named_parameters():
        if name.startswith("bias_ih"):
            weight.detach()[net.hidden_size : 2 * net.hidden_size] = 1.0
    return cell


def _tanh_step(gates: Tensor, state: tuple[Tensor, ...], weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    return (torch.tanh(gates + F.linear(state[0], weight, bias)),)


def _gru_step(gates: Tensor, state: tuple[Tensor, ...], weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    (h,) = state
    width = h.shape[-1]
    state_gates = F.linear(h, weight, bias)
    reset_update = torch.sigmoid(gates[:, : 2 * width] + state_gates[:, : 2 * width])
    new = torch.tanh(torch.addcmul(gates[:, 2 * width :], reset_update[:, :width], state_gates[:, 2 * width :]))
    return (torch.lerp(new, h, reset_update[:, width:]),)


def _lstm_step(gates: Tensor, state: tuple[Tensor, ...], weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    h, c = state
    i, f, g, o = (gates + F.linear(h, weight, bias)).chunk(4, -1)
    c = torch.addcmul(torch.sigmoid(f) * c, torch.sigmoid(i), torch.tanh(g))
    return torch.sigmoid(o) * torch.tanh(c), c


CELLS: dict[str, Callable[..., Cell]] = {"gru": gru, "lstm": lstm, "tanh": tanh}

CellSlot = Annotated[Callable[..., Cell], Slot(CELLS)]
