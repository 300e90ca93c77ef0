"""Blocks: one layer of a stack, made of sublayers. The same two verbs as a mixer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor, nn

from saccade.config import Slot, build
from saccade.parts.connections import ConnectionSlot, PreNorm
from saccade.parts.feed_forwards import FeedForward, PlainFeedForward
from saccade.parts.mixers import MixerSlot, MultiHead
from saccade.parts.norms import LayerNorm, Norm
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
    x ─ around_self(self) ─ around_memory(memory) ─ around_feed_forward(feed_forward) ─ y
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
        memory: MixerSlot = MultiHead,
        feed_forward: FeedForward = PlainFeedForward,
        connection: ConnectionSlot = PreNorm,
        norm: Norm = LayerNorm,
    ):
        super().__init__()
        mixers = {"self": (self_, causal)} | ({"memory": (memory, False)} if reads else {})
        for name, (mixer, past_only) in mixers.items():
            site = {"dim": dim, "causal": past_only, "remembers": name == "memory", "dropout": dropouts.attention}
            self.add_module(name, build(mixer, name, **site))
        self.add_module("feed_forward", build(feed_forward, "feed_forward", dim=dim, dropout=dropouts.feed_forward))
        self.mixers = tuple(mixers)
        self._norm, self._dim = norm, dim
        for name in (*mixers, "feed_forward"):
            around = build(connection, "connection", dim=dim, norm=norm, dropout=dropouts.residual)
            self.add_module(f"around_{name}", around)
            self._closes = bool(around.closes)

    def closing(self) -> nn.Module:
        """The norm that ends a stack of these, if the stream leaves them bare."""
        return build(self._norm, "norm", dim=self._dim) if self._closes else nn.Identity()

    def start(self, memory: Memory | None, rows: int) -> dict[str, Any]:
        return {
            name: self.get_submodule(name).start(memory if name == "memory" else None, rows)  # type: ignore[operator]
            for name in self.mixers
        }

    def forward(self, x: States, places: Places, state: dict[str, Any]) -> tuple[States, dict[str, Any]]:
        after = dict(state)
        for name in self.mixers:

            def mix(x: Tensor, name: str = name) -> Tensor:
                y, after[name] = self.get_submodule(name)(x, places, state[name])
                return y

            x = self.get_submodule(f"around_{name}")(x, mix)
        feed_forward = self.get_submodule("feed_forward")
        return self.get_submodule("around_feed_forward")(x, lambda x: feed_forward(x, places.keep)), after


BLOCKS: dict[str, Callable[..., nn.Module]] = {"standard": Standard}

BlockSlot = Annotated[Callable[..., nn.Module], Slot(BLOCKS)]
