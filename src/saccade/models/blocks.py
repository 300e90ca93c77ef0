"""Blocks: one layer of a stack, made of sublayers. The same two verbs as a mixer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor, nn

from saccade.config import Slot, build
from saccade.parts.connections import ConnectionSlot, PreNorm
from saccade.parts.feed_forwards import FeedForwardSlot, PlainFeedForward
from saccade.parts.mixers import MixerSlot, MultiHead
from saccade.parts.norms import LayerNorm, NormSlot
from saccade.places import Memory, Places
from saccade.shapes import States


@dataclass(frozen=True)
class Dropouts:
    """How much is dropped where: attention weights, sublayers' results, inside feed-forwards, embeddings."""

    attention: float = 0.0
    residual: float = 0.0
    feed_forward: float = 0.0
    embedding: float = 0.0


class Standard(nn.Module):
    """Self-attention, attention to the memory if it reads one, feed-forward; a connection around each.

    ```
    x ─ residual_self(self) ─ residual_cross(cross) ─ residual_feed_forward(feed_forward) ─ y
    ```
    The names of the sublayers are the words of the config, of the weight files and of the attention maps.
    """

    def __init__(
        self,
        dim: int,
        causal: bool = False,
        reads: bool = False,
        dropouts: Dropouts = Dropouts(),
        *,
        self_: MixerSlot = MultiHead,
        cross: MixerSlot = MultiHead,
        feed_forward: FeedForwardSlot = PlainFeedForward,
        connection: ConnectionSlot = PreNorm,
        norm: NormSlot = LayerNorm,
    ):
        super().__init__()
        mixers = {"self": (self_, causal)} | ({"cross": (cross, False)} if reads else {})
        for name, (mixer, past_only) in mixers.items():
            site = {"dim": dim, "causal": past_only, "cross": name == "cross", "dropout": dropouts.attention}
            self.add_module(name, build(mixer, name, **site))
        self.add_module("feed_forward", build(feed_forward, "feed_forward", dim=dim, dropout=dropouts.feed_forward))
        self.mixers = tuple(mixers)
        self._norm, self._dim = norm, dim
        for name in (*mixers, "feed_forward"):
            residual = build(connection, "connection", dim=dim, norm=norm, dropout=dropouts.residual)
            self.add_module(f"residual_{name}", residual)
            self._needs_final_norm = bool(residual.needs_final_norm)

    def final_norm(self) -> nn.Module:
        """The norm that ends a stack of these, if the stream leaves them bare."""
        return build(self._norm, "norm", dim=self._dim) if self._needs_final_norm else nn.Identity()

    def start(self, memory: Memory | None, rows: int) -> dict[str, Any]:
        return {
            name: self.get_submodule(name).start(memory if name == "cross" else None, rows)  # type: ignore[operator]
            for name in self.mixers
        }

    def forward(self, x: States, places: Places, state: dict[str, Any]) -> tuple[States, dict[str, Any]]:
        after = dict(state)
        for name in self.mixers:

            def mix(x: Tensor, name: str = name) -> Tensor:
                y, after[name] = self.get_submodule(name)(x, places, state[name])
                return y

            x = self.get_submodule(f"residual_{name}")(x, mix)
        feed_forward = self.get_submodule("feed_forward")
        return self.get_submodule("residual_feed_forward")(x, lambda x: feed_forward(x, places.keep)), after


BLOCKS: dict[str, Callable[..., nn.Module]] = {"standard": Standard}

BlockSlot = Annotated[Callable[..., nn.Module], Slot(BLOCKS)]
