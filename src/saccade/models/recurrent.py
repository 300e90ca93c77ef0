"""The recurrent encoder and decoder. The decoder may have attention, before its cell or after it."""

from typing import Literal, NotRequired, TypedDict

import torch
from torch import Tensor, nn

from saccade.config import Count, build
from saccade.errors import BuildError
from saccade.inputs import Input
from saccade.models.blocks import NO_DROPOUT, DropoutRates
from saccade.parts.cells import Cell, CellSlot, CellState, check_padding, gru
from saccade.parts.contexts import Context, ContextSlot
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import Embedding, EmbeddingSlot, TokenEmbedding
from saccade.parts.inits import linear_layer
from saccade.parts.mixers import Unprojected
from saccade.parts.pools import Last, Pool, PoolSlot
from saccade.parts.positions import NO_POSITION
from saccade.parts.readouts import Deep, Readout, ReadoutSlot
from saccade.places import DecoderState, Memory, Places, Progress
from saccade.shapes import Float, Ids, Int, Keep, States


class RecurrentEncoder(nn.Module):
    """Embedding and a recurrent net of `depth` layers. If it is `bidirectional`, half of the width comes from a net
    that runs from right to left (Schuster & Paliwal 1997). The default pool is the last state of each direction."""

    longest = None
    keeps_layers = False

    def __init__(
        self,
        dim: int,
        input: Input,  # noqa: A002 - the name of the wiring
        summary: bool = False,
        dropouts: DropoutRates = NO_DROPOUT,
        *,
        cell: CellSlot = gru,
        depth: Count = 1,
        bidirectional: bool = True,
        embedding: EmbeddingSlot = TokenEmbedding,
        pool: PoolSlot = Last,
    ):
        super().__init__()
        self.embedding: Embedding = build(embedding, "embedding", input=input, dim=dim)
        size = {"inputs": dim, "dim": dim, "depth": depth, "bidirectional": bidirectional}
        self.cell: Cell = build(cell, "cell", dropout=dropouts.residual, **size)
        self.dropout, self.drop_states = Dropout(dropouts.embedding), Dropout(dropouts.residual)
        self.pool: Pool | None = build(pool, "pool", backward_width=self.cell.backward_width) if summary else None

    def encode(self, values: Tensor, keep: Keep | None) -> Memory:
        """Encode whole sequences."""
        x, places = self.embedding(values, keep)
        x = self.dropout(x)
        states, _ = self.cell.whole(x, places)  # torch's nets return the output of the last layer only
        states = self.drop_states(states)
        layers = (x, states) if self.keeps_layers else ()
        return Memory(states, places, self.pool(states, places) if self.pool else None, layers)


class RecurrentState(TypedDict):
    """The state of a decoder: how far its rows are, the states of the cell and of the context (`memory`) and, with
    input feeding, the previous readout (`fed`)."""

    progress: Progress
    cell: CellState
    memory: DecoderState
    fed: NotRequired[Float[Tensor, "B D"]]


class RecurrentDecoder(nn.Module):
    """A recurrent net that is initialized from the source's summary and receives a context at each step. Without an
    encoder (`reads_summary` is false) its first state is zero, and only the context `at_start` is possible.

    ```
    attend = "before"   context = cross(previous state) → state = cell([token; context; fed])   (Bahdanau et al. 2015)
    attend = "after"    state = cell([token; fed]) → context = cross(state)                      (Luong et al. 2015)
    ```
    `token` is the embedding of the input token. The readout combines state, context and token into the hidden vector
    for the head. With `input_feeding`, `fed` is the previous readout (Luong et al. 2015, §3.3). A context that does not
    depend on the query (`at_start`, `every_step`) is always an input of the cell.

    A whole target is one call of torch's fused net, unless the cell's input depends on the previous step: with input
    feeding, and with attention before the cell.
    """

    longest = None

    def __init__(
        self,
        dim: int,
        input: Input,  # noqa: A002 - the name of the wiring
        reads_summary: bool = True,
        dropouts: DropoutRates = NO_DROPOUT,
        *,
        cell: CellSlot = gru,
        depth: Count = 1,
        embedding: EmbeddingSlot = TokenEmbedding,
        cross: ContextSlot = Unprojected,
        attend: Literal["before", "after"] = "before",
        input_feeding: bool = False,
        readout: ReadoutSlot = Deep,
    ):
        super().__init__()
        self.dim, self.input_feeding = dim, input_feeding
        self.embedding: Embedding = build(embedding, "embedding", input=input, dim=dim)
        arguments = {"dim": dim, "causal": False, "cross": True, "dropout": dropouts.attention, "position": NO_POSITION}
        self.cross: Context = build(cross, "cross", **arguments)
        if not reads_summary and self.cross.width:
            raise BuildError('reads the encoder, but there is none; use "at_start"', ("cross",))
        if attend == "after" and not self.cross.attends:
            raise BuildError("has no effect, because the context is not attention; leave it out", ("attend",))
        self.context_enters_cell = attend == "before"  # after the cell, the context depends on the cell's output
        inputs = dim + (self.cross.width if self.context_enters_cell else 0) + (dim if input_feeding else 0)
        self.cell: Cell = build(cell, "cell", inputs=inputs, dim=dim, depth=depth, dropout=dropouts.residual)
        self.state_width = depth * self.cell.state_vectors * dim
        self.initial = linear_layer(dim, self.state_width) if reads_summary else None
        self.readout: Readout = build(readout, "readout", dim=dim, context=self.cross.width)
        self.dropout, self.drop_readout = Dropout(dropouts.embedding), Dropout(dropouts.residual)

    def start(self, memory: Memory | None, rows: int) -> RecurrentState:
        """The state before the first token: tanh(W summary + b) for each layer, or zero without an encoder."""
        zeros = next(self.parameters()).new_zeros(rows, self.state_width)
        if self.initial is None:
            initial = zeros
        else:
            assert memory is not None
            initial = torch.tanh(self.initial(memory.summary))
        state: RecurrentState = {
            "progress": Progress.begin(rows, zeros.device),
            "cell": self.cell.initial_state(initial),
            "memory": self.cross.start(memory, rows),
        }
        if self.input_feeding:
            state["fed"] = zeros[:, : self.dim]
        return state

    def step(self, tokens: Ids, state: RecurrentState, keep: Keep | None = None) -> tuple[States, RecurrentState]:
        """Process the same number of tokens in each row: one, a prefix or the whole target."""
        x, places = self.embedding(tokens, keep, state["progress"])
        x = self.dropout(x)
        needs_previous_step = self.input_feeding or (self.context_enters_cell and self.cross.attends)
        compute = self._step_by_step if needs_previous_step or tokens.shape[1] == 1 else self._at_once
        hidden, new_state = compute(x, places, state)
        return self.drop_readout(hidden), {**new_state, "progress": state["progress"].after(places)}

    def _at_once(self, x: States, places: Places, state: RecurrentState) -> tuple[States, RecurrentState]:
        if self.context_enters_cell:
            context, memory = self.cross(x, places, state["memory"])
            y, cell = self.cell.whole(torch.cat([x, context], -1), places, state["cell"])
        else:
            y, cell = self.cell.whole(x, places, state["cell"])
            context, memory = self.cross(y, places, state["memory"])
        return self.readout(y, context, x), {**state, "cell": cell, "memory": memory}

    def _step_by_step(self, x: States, places: Places, state: RecurrentState) -> tuple[States, RecurrentState]:
        cell, memory, fed = state["cell"], state["memory"], state.get("fed")
        cells, feds = [cell], [] if fed is None else [fed]  # before each token, and after the last
        token_gates = self.cell.input_gates(x).unbind(1)  # of all tokens in one product
        states, contexts, readouts = [], [], []
        context: Tensor = x[:, :0]
        for t in range(x.shape[1]):
            query_places = places.one(t)
            if self.context_enters_cell:
                context, memory = self.cross(cell[-1][0][:, None], query_places, memory)
            y, cell = self.cell.step(self._gates(token_gates[t], context, fed), cell)
            if not self.context_enters_cell:
                context, memory = self.cross(y[:, None], query_places, memory)
            if self.input_feeding:
                readouts.append(self.readout(y[:, None], context, x[:, t : t + 1]))
                fed = self.drop_readout(readouts[-1][:, 0])
                feds.append(fed)
            else:
                states.append(y)
                contexts.append(context)
            cells.append(cell)
        hidden = (
            torch.cat(readouts, 1)
            if self.input_feeding
            else self.readout(torch.stack(states, 1), torch.cat(contexts, 1), x)
        )
        if places.padded:  # the state of a row is the one after its last token
            check_padding(places)
            counts = places.keep.sum(1)
            cell = tuple(
                tuple(_of_row([step[layer][i] for step in cells], counts) for i in range(len(vectors)))
                for layer, vectors in enumerate(cell)
            )
            fed = _of_row(feds, counts) if feds else None
        new_state: RecurrentState = {**state, "cell": cell, "memory": memory}
        if fed is not None:
            new_state["fed"] = fed
        return hidden, new_state

    def _gates(self, token_gates: Float[Tensor, "B G"], context: Tensor, fed: Tensor | None) -> Float[Tensor, "B G"]:
        """The contribution of the whole input [token; context; fed] to the gates, given that of the token embedding."""
        others = [context[:, 0]] if self.context_enters_cell and self.cross.width else []
        others += [] if fed is None else [fed]
        if not others:
            return token_gates
        return token_gates + self.cell.input_gates(others[0] if len(others) == 1 else torch.cat(others, -1), self.dim)


def _of_row(steps: list[Tensor], number: Int[Tensor, "B"]) -> Float[Tensor, "B W"]:
    """For each row, its vector in step number `number`."""
    return torch.stack(steps)[number, torch.arange(len(number), device=number.device)]
