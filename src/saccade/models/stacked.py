"""Encoders and decoders made of a stack of blocks, such as the Transformer."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, TypedDict, cast

from torch import Tensor, nn

from saccade.config import Count, build, mark_base_used
from saccade.inputs import Input
from saccade.models.blocks import NO_DROPOUT, BlockSlot, DropoutRates, Standard, check_hooks
from saccade.models.exceptions import LayerExceptions, exceptions_by_layer
from saccade.models.stacks import Layer, PlainStack, Stack, StackSlot
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import Embedding, EmbeddingSlot, TokenEmbedding
from saccade.parts.norms import Norm
from saccade.parts.pools import Mean, Pool, PoolSlot
from saccade.parts.positions import Position, PositionSlot, Sinusoidal
from saccade.places import DecoderState, Memory, Progress
from saccade.shapes import Ids, Keep, States


class StackedState(TypedDict):
    """The state of a decoder: how far its rows are, and the state of the layers."""

    progress: Progress
    layers: DecoderState


class Stacked(nn.Module):
    """Embedding, position encoding, a stack of `depth` layers and, if the last is pre-norm, a final norm. `exceptions`
    are layers with another block: each is merged over `block`, and `at` holds the numbers of its layers, from 0.

    As an encoder (built with `summary` if its summary is read, and with `keeps_layers` set if the states of all layers
    are): `encode(values, keep) → Memory`. As a decoder (built with `causal`, and with `cross_attention` if there is an
    encoder): `start(memory | None, rows) → state`, `step(tokens, state) → (hidden, state)`.
    """

    keeps_layers = False
    fused_options: ClassVar[set[str]] = {"depth", "embedding", "position", "stack", "block", "exceptions", "pool"}

    def __init__(
        self,
        dim: int,
        input: Input,  # noqa: A002 - the name of the wiring
        causal: bool = False,
        cross_attention: bool = False,
        summary: bool = False,
        dropouts: DropoutRates = NO_DROPOUT,
        *,
        depth: Count = 6,
        embedding: EmbeddingSlot = TokenEmbedding,
        position: PositionSlot = Sinusoidal,
        stack: StackSlot = PlainStack,
        block: BlockSlot = Standard,
        exceptions: LayerExceptions = (),
        pool: PoolSlot = Mean,
    ):
        super().__init__()
        self.embedding: Embedding = build(embedding, "embedding", input=input, dim=dim)
        self.position: Position = build(position, "position", dim=dim, causal=causal)
        self.dropout = Dropout(dropouts.embedding)
        self.stack: Stack = build(stack, "stack", dim=dim, depth=depth)
        arguments = {"dim": dim, "causal": causal, "cross_attention": cross_attention, "dropouts": dropouts}
        arguments["position"] = self.position
        count = self.stack.layer_count(depth)
        others = exceptions_by_layer(exceptions, count)
        keyed = [others.get(layer, ("block", block)) for layer in range(count)]
        for key, choice in keyed:
            check_hooks(choice, key, causal, self.position)
        layers = [build(choice, key, **arguments) for key, choice in keyed]
        for exception in exceptions:
            mark_base_used(block, exception)  # it was merged over the block, which maybe no layer has itself
        self.layers = nn.ModuleList(cast(Iterable[nn.Module], layers))  # a Protocol cannot say that it is a module
        self.final_norm: Norm = layers[-1].final_norm()
        self.pool: Pool | None = build(pool, "pool") if summary else None

    @property
    def longest(self) -> int | None:
        return self.position.longest

    def encode(self, values: Tensor, keep: Keep | None) -> Memory:
        """Encode whole sequences."""
        state = self.stack.start(self._layers, None, values.shape[0])
        x, places = self.embedding(values, keep)
        x = self.dropout(self.position.embed(x, places))
        outputs, places, _ = self.stack(self._layers, x, places, state)
        states = self.final_norm(outputs[-1])
        layers = (x, *outputs) if self.keeps_layers else ()
        return Memory(states, places, self.pool(states, places) if self.pool else None, layers)

    def start(self, memory: Memory | None, rows: int) -> StackedState:
        """The state before the first token."""
        progress = Progress.begin(rows, next(self.parameters()).device)
        return {"progress": progress, "layers": self.stack.start(self._layers, memory, rows)}

    def step(self, tokens: Ids, state: StackedState, keep: Keep | None = None) -> tuple[States, StackedState]:
        """Process the same number of tokens in each row: one, a prefix or the whole target."""
        x, places = self.embedding(tokens, keep, state["progress"])
        x = self.dropout(self.position.embed(x, places))
        outputs, _, layers = self.stack(self._layers, x, places, state["layers"])
        return self.final_norm(outputs[-1]), {"progress": state["progress"].after(places), "layers": layers}

    @property
    def _layers(self) -> Sequence[Layer]:
        return tuple(cast(Iterable[Layer], self.layers))  # nn.ModuleList does not know the type of its elements
