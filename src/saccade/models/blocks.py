"""Blocks. A block is one layer of a stack, made of sublayers: (x, places, state) → (y, state), like a mixer."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from saccade.config import Config, Slot, build, wiring
from saccade.errors import BuildError
from saccade.models.stacks import Layer
from saccade.parts.connections import Connection, ConnectionSlot, PreNorm
from saccade.parts.dropout import MAX_DROPOUT_RATE
from saccade.parts.feed_forwards import FeedForward, FeedForwardSlot, PlainFeedForward
from saccade.parts.mixers import Mixer, MixerSlot, MultiHead
from saccade.parts.norms import LayerNorm, Norm, NormSlot
from saccade.parts.positions import NO_POSITION, Position
from saccade.places import DecoderState, Memory, Places
from saccade.shapes import States

DropoutRate = Annotated[float, Field(ge=0, le=MAX_DROPOUT_RATE)]


class DropoutRates(Config):
    """Dropout rates. `attention`: attention weights. `residual`: the output of each sublayer; in recurrent models the
    outputs between the layers of a cell, the encoder's states and the decoder's readouts. `feed_forward`: the hidden
    units of a feed-forward. `embedding`: the embedded input."""

    attention: DropoutRate = 0.0
    residual: DropoutRate = 0.1
    feed_forward: DropoutRate = 0.0
    embedding: DropoutRate = 0.1


NO_DROPOUT = DropoutRates(residual=0.0, embedding=0.0)


def check_hooks(part: Callable[..., Any], key: str, causal: bool, position: Position) -> None:
    """Refuse a mixer or block that does not take a causal mask or a position encoding which it would have to apply:
    without this it would be built and do without."""
    taken = wiring(part)
    if causal and "causal" not in taken:
        raise BuildError("is not causal, so a decoder cannot generate with it; choose another kind", (key,))
    if position.is_for_attention and "position" not in taken:
        raise BuildError(
            "does not apply the position encoding, which acts inside attention; choose another kind, or a position "
            'encoding that is added to the embeddings, such as "sinusoidal"',
            (key,),
        )


class Standard(nn.Module):
    """Self-attention, cross-attention (only in a decoder with an encoder) and feed-forward, each with a residual
    connection.

    ```
    x ─ residual_self(self) ─ residual_cross(cross) ─ residual_feed_forward(feed_forward) ─ y
    ```
    The names of the sublayers are used in the config, in the weight files and for attention maps.
    """

    fused_options: ClassVar[set[str]] = {"self", "cross", "feed_forward", "connection", "norm"}

    def __init__(
        self,
        dim: int,
        causal: bool = False,
        cross_attention: bool = False,
        dropouts: DropoutRates = NO_DROPOUT,
        position: Position = NO_POSITION,
        *,
        self_: MixerSlot = MultiHead,
        cross: MixerSlot = MultiHead,
        feed_forward: FeedForwardSlot = PlainFeedForward,
        connection: ConnectionSlot = PreNorm,
        norm: NormSlot = LayerNorm,
    ):
        super().__init__()
        mixers = {"self": (self_, causal)} | ({"cross": (cross, False)} if cross_attention else {})
        for name, (mixer, is_causal) in mixers.items():
            arguments = {"dim": dim, "causal": is_causal, "cross": name == "cross", "dropout": dropouts.attention}
            arguments["position"] = position if name == "self" else NO_POSITION
            check_hooks(mixer, name, is_causal, arguments["position"])
            setattr(self, name, build(mixer, name, **arguments))
        self.feed_forward: FeedForward = build(feed_forward, "feed_forward", dim=dim, dropout=dropouts.feed_forward)
        self.mixers = tuple(mixers)
        self._norm, self._dim = norm, dim
        for name in (*mixers, "feed_forward"):
            residual = build(connection, "connection", dim=dim, norm=norm, dropout=dropouts.residual)
            setattr(self, f"residual_{name}", residual)
            self._needs_final_norm = residual.needs_final_norm

    def final_norm(self) -> Norm:
        return build(self._norm, "norm", dim=self._dim) if self._needs_final_norm else nn.Identity()

    def start(self, memory: Memory | None, rows: int) -> dict[str, DecoderState]:
        """The state of each mixer by name."""
        return {name: self.mixer(name).start(memory if name == "cross" else None, rows) for name in self.mixers}

    def forward(
        self, x: States, places: Places, state: dict[str, DecoderState]
    ) -> tuple[States, dict[str, DecoderState]]:
        new_state = dict(state)
        for name in self.mixers:

            def mix(x: Tensor, name: str = name) -> Tensor:
                y, new_state[name] = self.mixer(name)(x, places, state[name])
                return y

            x = self._residual(name)(x, mix)
        return self._residual("feed_forward")(x, lambda x: self.feed_forward(x, places)), new_state

    def mixer(self, name: str) -> Mixer:
        """The mixer of the sublayer `self` or `cross`."""
        return getattr(self, name)

    def _residual(self, name: str) -> Connection:
        return getattr(self, f"residual_{name}")


BLOCKS: dict[str, Callable[..., Layer]] = {"standard": Standard}

BlockSlot = Annotated[Callable[..., Layer], Slot(BLOCKS)]
