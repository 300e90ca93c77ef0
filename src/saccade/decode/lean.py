"""One step of a Transformer's decoder in as few operations as it can be done with.

A step of a small model for a few rows is hardly any work: what takes the time is asking for it, module by module. Here
the usual block is written out over its bare weights: one place at a time, queries, keys and values in one product, the
scale of the scores folded into it. What it gives is what the modules give, to rounding; a model of other parts keeps to
its modules.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.assemble import Model
from saccade.models.blocks import Standard
from saccade.models.stacked import Stacked
from saccade.models.stacks import Plain
from saccade.notes import Part
from saccade.parts.connections import PostNorm, PreNorm
from saccade.parts.embeddings import Words
from saccade.parts.feed_forwards import PlainFeedForward
from saccade.parts.mixers import MultiHead
from saccade.parts.mixers.looking import Cache, Remembered
from saccade.parts.norms import LayerNorm
from saccade.parts.picks import Soft
from saccade.parts.positions import Learned, Sinusoidal
from saccade.parts.scores import Dot, ScaledDot
from saccade.places import Fixed, Memory, Places
from saccade.shapes import Float, Int

Map = Callable[[Tensor], Tensor]
Row = Float[Tensor, "B D"]  # one place of each hypothesis


def fits(model: Model) -> bool:
    """Whether the decoder is made of the parts that are written out here, and nobody listens to them."""
    decoder: Any = model.decoder
    if type(decoder) is not Stacked or type(decoder.stack) is not Plain or type(decoder.embedding) is not Words:
        return False
    known = type(decoder.position) in (Sinusoidal, Learned) and type(decoder.close) in (LayerNorm, nn.Identity)
    unheard = not any(part._ears for part in decoder.modules() if isinstance(part, Part))
    return known and unheard and all(_fits(block) for block in decoder.layers)


def _fits(block: nn.Module) -> bool:
    if type(block) is not Standard or block.mixers != ("self", "memory"):
        return False
    around = [block.get_submodule(f"around_{name}") for name in ("self", "memory", "feed_forward")]
    mixers = [block.get_submodule(name) for name in block.mixers]
    return (
        all(type(each) in (PreNorm, PostNorm) and type(each.norm) is LayerNorm for each in around)
        and all(type(each) is MultiHead and _is_plain(each) for each in mixers)
        and type(block.get_submodule("feed_forward")) is PlainFeedForward
    )


def _is_plain(mixer: MultiHead) -> bool:
    return type(mixer.score) in (Dot, ScaledDot) and type(mixer.pick) is Soft


class LeanStep:
    """The decoder and the head of a model that fits, with their weights as they are now."""

    def __init__(self, model: Model):
        self._decoder, self._head = cast(Stacked, model.decoder), model.head
        embedding = cast(Words, self._decoder.embedding)
        self._table, self._scale = embedding.table.weight, embedding.scale
        self._layers = [_Layer(cast(Standard, block)) for block in self._decoder.layers]
        self._close: Map = self._decoder.close
        self._places = self._places_to(64)

    def start(self, memory: Memory, rows: int) -> dict[str, Any]:
        keep = memory.places.keep[:, None, None] if memory.places.padded else None
        blocks = [cast(Standard, block).start(memory, rows) for block in self._decoder.layers]
        return {
            "at": 0,
            "caches": tuple(block["self"] for block in blocks),
            "memory": tuple(block["memory"] for block in blocks),
            "keep": Fixed(keep),
        }

    def step(self, tokens: Int[Tensor, "B"], state: dict[str, Any]) -> tuple[Float[Tensor, "B V"], dict[str, Any]]:
        at: int = state["at"]
        if at >= self._places.shape[0]:
            self._places = self._places_to(2 * at)
        x = torch.add(self._places[at], F.embedding(tokens, self._table), alpha=self._scale)
        caches = []
        for layer, cache, memory in zip(self._layers, state["caches"], state["memory"], strict=True):
            x, cache = layer(x, cache, memory.value, state["keep"].value)
            caches.append(cache)
        return self._head.log_probs(self._close(x)), state | {"at": at + 1, "caches": tuple(caches)}

    def _places_to(self, count: int) -> Float[Tensor, "T D"]:
        """What the position adds at each of so many places, or as many as there are."""
        longest = self._decoder.longest or count
        nothing = self._table.new_zeros(1, min(count, longest), self._table.shape[1])
        return self._decoder.position.embed(nothing, Places.of(nothing, None))[0]


class _Layer:
    """One block."""

    def __init__(self, block: Standard):
        own, memory = (cast(MultiHead, block.get_submodule(name)) for name in ("self", "memory"))
        feed_forward = cast(PlainFeedForward, block.get_submodule("feed_forward"))
        self._sums = [_sum(block.get_submodule(f"around_{name}")) for name in ("self", "memory", "feed_forward")]
        query, bias = _scaled(own)
        self._into = torch.cat([query, own.key.weight, own.value.weight])
        self._into_bias = torch.cat([bias, own.key.bias, own.value.bias])
        self._widths = [own.query.out_features, own.key.out_features, own.value.out_features]
        self._own_out, self._own_heads = own.out, own.heads
        self._query, self._query_bias = _scaled(memory)
        self._memory_out, self._memory_heads = memory.out, memory.heads
        self._feed_forward: Map = lambda x: feed_forward.out(feed_forward.activation(feed_forward.into(x)))

    def __call__(self, x: Row, cache: Cache, memory: Remembered, keep: Tensor | None) -> tuple[Row, Cache]:
        around_self, around_memory, around_feed_forward = self._sums
        x, cache = around_self(x, lambda x: self._look_back(x, cache))
        x, _ = around_memory(x, lambda x: (self._look_at(x, memory, keep), None))
        x, _ = around_feed_forward(x, lambda x: (self._feed_forward(x), None))
        return x, cache

    def _look_back(self, x: Row, cache: Cache) -> tuple[Row, Cache]:
        parts = F.linear(x, self._into, self._into_bias).split(self._widths, 1)
        query, key, value = (part.unflatten(1, (self._own_heads, 1, -1)) for part in parts)
        cache = cache.grown(key, value)
        found = F.scaled_dot_product_attention(query, cache.key, cache.value, scale=1.0)
        return _linear(self._own_out, found.flatten(1)), cache

    def _look_at(self, x: Row, memory: Remembered, keep: Tensor | None) -> Row:
        """The hypotheses of a sentence are queries of its one row."""
        sentences = memory.key.shape[0]
        query = F.linear(x, self._query, self._query_bias).view(sentences, -1, self._memory_heads, memory.key.shape[3])
        found = F.scaled_dot_product_attention(query.transpose(1, 2), memory.key, memory.value, keep, scale=1.0)
        return _linear(self._memory_out, found.transpose(1, 2).reshape(x.shape[0], -1))


Found = tuple[Row, Any]  # a result, and what goes with it


def _sum(around: nn.Module) -> Callable[[Row, Callable[[Row], Found]], Found]:
    """A connection, of a sublayer that also returns something else."""
    norm = cast(LayerNorm, around.norm)
    shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps

    def before(x: Row, sublayer: Callable[[Row], Found]) -> Found:
        y, beside = sublayer(torch.layer_norm(x, shape, weight, bias, eps))
        return x + y, beside

    def after(x: Row, sublayer: Callable[[Row], Found]) -> Found:
        y, beside = sublayer(x)
        return torch.layer_norm(x + y, shape, weight, bias, eps), beside

    return before if type(around) is PreNorm else after


def _scaled(mixer: MultiHead) -> tuple[Tensor, Tensor]:
    """Weight and bias of the queries, with what the score does to them."""
    width = mixer.query.out_features // mixer.heads
    scale = 1 / math.sqrt(width) if type(mixer.score) is ScaledDot else 1.0
    return mixer.query.weight * scale, mixer.query.bias * scale


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight, layer.bias)
