"""The recurrent encoder and decoder: with attention or without, before the cell or after it."""

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from saccade.config import Count, build
from saccade.errors import SaccadeError
from saccade.models.blocks import Dropouts
from saccade.parts.cells import Cell, CellSlot, CellState, gru
from saccade.parts.contexts import Context, ContextSlot
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import Embedding, EmbeddingSlot, TokenEmbedding
from saccade.parts.inits import linear
from saccade.parts.mixers import Unprojected
from saccade.parts.pools import Last, Pool, PoolSlot
from saccade.parts.readouts import Deep, Readout, ReadoutSlot
from saccade.places import Memory, Places
from saccade.shapes import Float, Ids, Keep, States


class RecurrentEncoder(nn.Module):
    """Embedding, then a recurrent net of `depth` layers; `bidirectional`: half of the width reads from right to left
    (Schuster & Paliwal 1997). Its pool is by default its last state."""

    longest = None

    def __init__(
        self,
        dim: int,
        vocabulary: int = 0,
        frames: int = 0,
        dropouts: Dropouts = Dropouts(),
        *,
        cell: CellSlot = gru,
        depth: Count = 1,
        bidirectional: bool = True,
        embedding: EmbeddingSlot = TokenEmbedding,
        pool: PoolSlot = Last,
    ):
        super().__init__()
        self.embedding = cast(Embedding, build(embedding, "embedding", vocabulary=vocabulary, frames=frames, dim=dim))
        size = {"inputs": dim, "dim": dim, "depth": depth, "bidirectional": bidirectional}
        self.cell = cast(Cell, build(cell, "cell", dropout=dropouts.residual, **size))
        self.dropout, self.drop_states = Dropout(dropouts.embedding), Dropout(dropouts.residual)
        self.pool = cast(Pool, build(pool, "pool", backward_width=self.cell.backward_width))

    def encode(self, values: Tensor, keep: Keep | None) -> Memory:
        """Read a whole sequence."""
        x, places = self.embedding(values, keep)
        states, _ = self.cell.whole(self.dropout(x), places)
        states = self.drop_states(states)
        return Memory(states, places, self.pool(states, places))


class RecurrentDecoder(nn.Module):
    """A recurrent net that starts from the source's summary and is told a context at each step.

    ```
    attend = "before"   context = memory(state before) → state = cell([word; context; fed])    (Bahdanau et al. 2015)
    attend = "after"    state = cell([word; fed]) → context = memory(state)                    (Luong et al. 2015)
    ```
    Then the readout says what to write. With `input_feeding` that is read again at the next step (Luong et al. 2015,
    §3.3). A context that does not look (`at_start`, `every_step`) is known before the cell, whatever `attend` says.

    Where no step needs the one before it, beside the net itself, the whole target is one call of torch's fused net.
    """

    longest = None

    def __init__(
        self,
        dim: int,
        vocabulary: int,
        dropouts: Dropouts = Dropouts(),
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
        self.embedding = cast(Embedding, build(embedding, "embedding", vocabulary=vocabulary, frames=0, dim=dim))
        site = {"dim": dim, "causal": False, "cross": True, "dropout": dropouts.attention}
        self.cross = cast(Context, build(cross, "cross", **site))
        self.before = attend == "before" or not self.cross.attends
        told = (self.cross.width if self.before else 0) + (dim if input_feeding else 0)
        self.cell = cast(Cell, build(cell, "cell", inputs=dim + told, dim=dim, depth=depth, dropout=dropouts.residual))
        self.initial = linear(dim, depth * self.cell.state_vectors * dim)
        self.readout = cast(Readout, build(readout, "readout", dim=dim, context=self.cross.width))
        self.dropout, self.drop_readout = Dropout(dropouts.embedding), Dropout(dropouts.residual)

    def start(self, memory: Memory | None, rows: int) -> dict[str, Any]:
        """Before the first token: s₀ = tanh(W summary) for every layer. Without a memory only `at_start` can begin."""
        if memory is None and self.cross.width:
            raise SaccadeError('a recurrent decoder that reads no source needs model.decoder.cross = "at_start"')
        summary = self.initial.weight.new_zeros(rows, self.dim) if memory is None else memory.summary
        state = {
            "at": torch.zeros(rows, dtype=torch.long, device=summary.device),
            "cell": self.cell.initial_state(torch.tanh(self.initial(summary))),
            "memory": self.cross.start(memory, rows),
        }
        return state | {"fed": torch.zeros_like(summary)} if self.input_feeding else state

    def step(self, tokens: Ids, state: dict[str, Any], keep: Keep | None = None) -> tuple[States, dict[str, Any]]:
        """One token, a prefix, or the whole target: all rows advance together."""
        x, places = self.embedding(tokens, keep, state["at"])
        x = self.dropout(x)
        waits = self.input_feeding or (self.before and self.cross.attends)
        run = self._step_by_step if waits or tokens.shape[1] == 1 else self._at_once
        hidden, after = run(x, places, state)
        return self.drop_readout(hidden), after | {"at": state["at"] + tokens.shape[1]}

    def _at_once(self, x: States, places: Places, state: dict[str, Any]) -> tuple[States, dict[str, Any]]:
        if self.before:
            context, memory = self.cross(x, places, state["memory"])
            y, cell = self.cell.whole(torch.cat([x, context], -1), places, state["cell"])
        else:
            y, cell = self.cell.whole(x, places, state["cell"])
            context, memory = self.cross(y, places, state["memory"])
        return self.readout(y, context, x), {"cell": cell, "memory": memory}

    def _step_by_step(self, x: States, places: Places, state: dict[str, Any]) -> tuple[States, dict[str, Any]]:
        cell: CellState = state["cell"]
        memory, fed = state["memory"], state.get("fed")
        given = self.cell.input_gates(x).unbind(1)  # all words at once: a step has less to do
        states, contexts, said = [], [], []
        context: Tensor = x[:, :0]
        for t in range(x.shape[1]):
            here = places.one(t)
            if self.before:
                context, memory = self.cross(cell[-1][0][:, None], here, memory)
            y, cell = self.cell.step(self._gates(given[t], context, fed), cell)
            if not self.before:
                context, memory = self.cross(y[:, None], here, memory)
            if self.input_feeding:
                said.append(self.readout(y[:, None], context, x[:, t : t + 1]))
                fed = self.drop_readout(said[-1][:, 0])
            else:
                states.append(y)
                contexts.append(context)
        hidden = (
            torch.cat(said, 1)
            if self.input_feeding
            else self.readout(torch.stack(states, 1), torch.cat(contexts, 1), x)
        )
        after = {"cell": cell, "memory": memory}
        return hidden, after | {"fed": fed} if self.input_feeding else after

    def _gates(self, given: Float[Tensor, "B G"], context: Tensor, fed: Tensor | None) -> Float[Tensor, "B G"]:
        """What the cell's whole input says: the word's part is known already."""
        told = ([context[:, 0]] if self.before and self.cross.width else []) + ([fed] if fed is not None else [])
        if not told:
            return given
        return given + self.cell.input_gates(told[0] if len(told) == 1 else torch.cat(told, -1), self.dim)
