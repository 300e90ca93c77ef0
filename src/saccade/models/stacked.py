"""Encoders and decoders made of a stack of blocks. One class is both: an encoder is one long step from nothing."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from saccade.config import Count, build
from saccade.models.blocks import BlockSlot, Dropouts, Standard
from saccade.models.stacks import Layer, PlainStack, Stack, StackSlot
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import Embedding, EmbeddingSlot, TokenEmbedding
from saccade.parts.pools import Mean, Pool, PoolSlot
from saccade.parts.positions import Position, PositionSlot, Sinusoidal
from saccade.places import Memory
from saccade.shapes import Ids, Keep, States


class Stacked(nn.Module):
    """Embedding and position, then layers, then a closing norm where the connections leave the stream bare.

    As an encoder: `encode(values, keep) → Memory`. As a decoder (`causal`, and `reads` where there is a memory):
    `start(memory | None, rows) → state`, `step(tokens, state) → (hidden, state)`.
    """

    def __init__(
        self,
        dim: int,
        vocabulary: int = 0,
        frames: int = 0,
        causal: bool = False,
        reads: bool = False,
        dropouts: Dropouts = Dropouts(),
        *,
        depth: Count = 6,
        embedding: EmbeddingSlot = TokenEmbedding,
        position: PositionSlot = Sinusoidal,
        stack: StackSlot = PlainStack,
        block: BlockSlot = Standard,
        pool: PoolSlot = Mean,
    ):
        super().__init__()
        self.embedding = cast(Embedding, build(embedding, "embedding", vocabulary=vocabulary, frames=frames, dim=dim))
        self.position = cast(Position, build(position, "position", dim=dim))
        self.dropout = Dropout(dropouts.embedding)
        self.stack = cast(Stack, build(stack, "stack", dim=dim, depth=depth))
        self.layers = nn.ModuleList(
            build(block, "block", dim=dim, causal=causal, reads=reads, dropouts=dropouts)
            for _ in range(self.stack.count(depth))
        )
        self.final_norm = cast(Layer, self.layers[0]).final_norm()
        self.pool = cast(Pool, build(pool, "pool"))

    @property
    def longest(self) -> int | None:
        return self.position.longest

    def encode(self, values: Tensor, keep: Keep | None) -> Memory:
        """Read a whole sequence."""
        state = self.stack.start(self._layers, None, values.shape[0])
        x, places = self.embedding(values, keep)
        x, places, _ = self.stack(self._layers, self.dropout(self.position.embed(x, places)), places, state)
        x = self.final_norm(x)
        return Memory(x, places, self.pool(x, places))

    def start(self, memory: Memory | None, rows: int) -> dict[str, Any]:
        """Before the first token."""
        at = torch.zeros(rows, dtype=torch.long, device=next(self.parameters()).device)
        return {"at": at, "layers": self.stack.start(self._layers, memory, rows)}

    def step(self, tokens: Ids, state: dict[str, Any], keep: Keep | None = None) -> tuple[States, dict[str, Any]]:
        """One token, a prefix, or the whole target: all rows advance together."""
        x, places = self.embedding(tokens, keep, state["at"])
        x = self.dropout(self.position.embed(x, places))
        x, _, layers = self.stack(self._layers, x, places, state["layers"])
        return self.final_norm(x), {"at": state["at"] + tokens.shape[1], "layers": layers}

    @property
    def _layers(self) -> Sequence[Layer]:
        return tuple(cast(Sequence[Layer], self.layers))
