"""A Transformer in as few operations as it can be done with: a source read, and one step of the decoder.

A step of a small model for a few rows is hardly any work: what takes the time is asking for it, module by module. Here
the usual block is written out over its bare weights: one place at a time, queries, keys and values in one product, the
scale of the scores folded into it; keys and values of all layers in one tensor, with room for the next; the memory of
a single sentence multiplied into the weights of its cross-attention. The result equals that of the modules up to
rounding; a model of other parts keeps to its modules.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.decode.loops import SingleHypothesis, SingleRow
from saccade.models.assemble import Model
from saccade.models.blocks import Standard
from saccade.models.stacked import Stacked
from saccade.models.stacks import PlainStack
from saccade.notes import Part
from saccade.parts.connections import PostNorm, PreNorm
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.fast_linear import linear
from saccade.parts.feed_forwards import PlainFeedForward
from saccade.parts.mixers import MultiHead
from saccade.parts.mixers.attend import MemoryKeys
from saccade.parts.normalizers import Softmax
from saccade.parts.norms import LayerNorm
from saccade.parts.positions import Learned, Sinusoidal
from saccade.parts.scores import Dot, ScaledDot
from saccade.places import Memory, PerSentence, Places
from saccade.shapes import Float, Ids, Int, Keep, States

TensorFunction = Callable[[Tensor], Tensor]
Rows = Float[Tensor, "B D"]  # one place of each hypothesis
CACHE_GROWTH = 8  # places by which keys and values grow


def can_fuse_encoder(model: Model) -> bool:
    """Whether the encoder is made of the parts that are written out here, and nobody listens to them."""
    return _fit(model.encoder, ("self",))


def can_fuse_decoder(model: Model) -> bool:
    """Whether the decoder is."""
    return _fit(model.decoder, ("self", "cross"))


def _fit(side: Any, mixers: tuple[str, ...]) -> bool:
    if type(side) is not Stacked or type(side.stack) is not PlainStack or type(side.embedding) is not TokenEmbedding:
        return False
    if type(side.position) not in (Sinusoidal, Learned) or type(side.final_norm) not in (LayerNorm, nn.Identity):
        return False
    unheard = not any(part._listeners for part in side.modules() if isinstance(part, Part))
    return unheard and all(_fits(block, mixers) for block in side.layers)


def _fits(block: nn.Module, mixers: tuple[str, ...]) -> bool:
    if type(block) is not Standard or block.mixers != mixers:
        return False
    around = [block.get_submodule(f"residual_{name}") for name in (*mixers, "feed_forward")]
    return (
        all(type(each) in (PreNorm, PostNorm) and type(each.norm) is LayerNorm for each in around)
        and all(_is_plain(block.get_submodule(name)) for name in mixers)
        and type(block.get_submodule("feed_forward")) is PlainFeedForward
    )


def _is_plain(mixer: nn.Module) -> bool:
    if type(mixer) is not MultiHead or mixer.key.out_features != mixer.value.out_features:
        return False
    return type(mixer.score) in (Dot, ScaledDot) and type(mixer.normalizer) is Softmax


class FusedEncoder:
    """The encoder of a model that can be read like this, with its weights as they are now."""

    def __init__(self, model: Model):
        self._encoder = cast(Stacked, model.encoder)
        self._embed = FusedEmbedding(self._encoder)
        self._layers = [_FusedEncoderLayer(cast(Standard, block)) for block in self._encoder.layers]

    def __call__(self, values: Ids, keep: Keep | None) -> Memory:
        length, places = values.shape[1], Places.of(values, keep)
        x = self._embed(values, self._embed.places(length)[:length])
        seen = places.keep[:, None, None] if places.padded else None
        for layer in self._layers:
            x = layer(x, seen)
        x = self._encoder.final_norm(x)
        return Memory(x, places, self._encoder.pool(x, places))


class _FusedEncoderLayer:
    """One block of an encoder."""

    def __init__(self, block: Standard):
        self._self_attention, self._feed_forward = (
            AttentionWeights.of(block.get_submodule("self")),
            FusedFeedForward(block),
        )
        self._residuals = [Residual(block.get_submodule(f"residual_{name}")) for name in ("self", "feed_forward")]

    def __call__(self, x: States, seen: Tensor | None) -> States:
        around_look, residual_feed_forward = self._residuals
        x = around_look.after(x, self._attend(around_look.before(x), seen))
        return residual_feed_forward.after(x, self._feed_forward(residual_feed_forward.before(x)))

    def _attend(self, x: States, seen: Tensor | None) -> States:
        look = self._self_attention
        parts = linear(x, look.qkv_weight, look.qkv_bias).unflatten(2, (3, look.heads, look.width))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        found = F.scaled_dot_product_attention(query, key, value, seen, scale=1.0)
        return linear(found.transpose(1, 2).flatten(2), look.out, look.out_bias)


class FusedDecoder:
    """The decoder and the head of a model that can step like this, with its weights as they are now. A step writes into
    the state it is given, so each state is good for one step."""

    def __init__(self, model: Model):
        decoder = cast(Stacked, model.decoder)
        self.final_norm, self.head = decoder.final_norm, model.head
        self.embed = FusedEmbedding(decoder)
        self.layers = [FusedDecoderLayer(cast(Standard, block)) for block in decoder.layers]
        self._single_memories = SingleMemories([layer.cross for layer in self.layers])

    def start(self, memory: Memory, rows: int) -> dict[str, Any]:
        first = self.layers[0].self_attention
        past = self.embed.table.new_empty(rows, len(self.layers), 2, first.heads, CACHE_GROWTH, first.width)
        return {
            "at": 0,
            "past": past,
            "memory": tuple(map(PerSentence, self.prepare_memory(memory, self._single_memories))),
        }

    def prepare_memory(self, memory: Memory, single: "SingleMemories") -> "Sequence[SingleMemory | BatchMemory]":
        """What each layer looks at. One sentence has no padding, and where its places are few it is less work, too, to
        have done with them what the weights do."""
        if not memory.places.padded and memory.states.shape[0] == 1 and single.is_worth_folding(memory.states.shape[1]):
            return single(memory.states[0])
        return [layer.prepare_memory(memory) for layer in self.layers]

    def single(self, memory: Memory) -> SingleHypothesis:
        return SingleRow(self, memory)

    def step(self, tokens: Int[Tensor, "B"], state: dict[str, Any]) -> tuple[Float[Tensor, "B V"], dict[str, Any]]:
        at, past = state["at"], state["past"]
        if at == past.shape[4]:
            past = F.pad(past, (0, 0, 0, CACHE_GROWTH))
        x = self.embed(tokens, self.embed.places(at + 1)[at])
        for layer, own, memory in zip(self.layers, past.unbind(1), state["memory"], strict=True):
            x = layer(x, own, at, memory.value)
        return self.head.log_probs(self.final_norm(x)), state | {"at": at + 1, "past": past}


class FusedEmbedding:
    """The vectors of tokens, and what the position adds to them."""

    def __init__(self, side: Stacked):
        embedding = cast(TokenEmbedding, side.embedding)
        self.table, self.scale = embedding.table.weight, embedding.scale
        self._position, self._longest = side.position, side.longest
        self._places = self._places_to(min(32, self._longest or 32))

    def __call__(self, tokens: Int[Tensor, "*n"], places: Float[Tensor, "*m D"]) -> Float[Tensor, "*n D"]:
        return torch.add(places, F.embedding(tokens, self.table), alpha=self.scale)

    def places(self, count: int) -> Float[Tensor, "T D"]:
        """What the position adds at each of so many places, and maybe more."""
        places = self._places  # read once: other threads may be here, too
        if count > len(places):
            self._places = places = self._places_to(count)
        return places

    def _places_to(self, count: int) -> Float[Tensor, "T D"]:
        """Of so many places and more, if there are; if not, the position says so itself."""
        longest = self._longest or 2 * count
        nothing = self.table.new_zeros(1, max(count, min(2 * count, longest)), self.table.shape[1])
        return self._position.embed(nothing, Places.of(nothing, None))[0]


class FusedDecoderLayer:
    """One block of a decoder."""

    def __init__(self, block: Standard):
        self.self_attention, self.feed_forward = (
            AttentionWeights.of(block.get_submodule("self")),
            FusedFeedForward(block),
        )
        self._cross_part = cast(MultiHead, block.get_submodule("cross"))
        self.cross = AttentionWeights.of(self._cross_part)
        names = ("self", "cross", "feed_forward")
        self.residuals = [Residual(block.get_submodule(f"residual_{name}")) for name in names]

    def prepare_memory(self, memory: Memory) -> "BatchMemory":
        """The hypotheses of a sentence are queries of its one row."""
        keep = memory.places.keep[:, None, None] if memory.places.padded else None
        there = cast(MemoryKeys, self._cross_part.start(memory, 1).value)
        return BatchMemory(there.key, there.value, keep, self.cross)

    def __call__(self, x: Rows, own: Tensor, at: int, memory: TensorFunction) -> Rows:
        around_own, residual_cross, residual_feed_forward = self.residuals
        x = around_own.after(x, self._attend_to_cache(around_own.before(x), own, at))
        x = residual_cross.after(x, memory(residual_cross.before(x)))
        return residual_feed_forward.after(x, self.feed_forward(residual_feed_forward.before(x)))

    def _attend_to_cache(self, x: Rows, past: Float[Tensor, "B 2 H T K"], at: int) -> Rows:
        look = self.self_attention
        parts = linear(x, look.qkv_weight, look.qkv_bias).view(-1, 3, look.heads, 1, look.width)
        past[..., at : at + 1, :] = parts[:, 1:]
        keys, values = past[..., : at + 1, :].unbind(1)
        found = F.scaled_dot_product_attention(parts[:, 0], keys, values, scale=1.0)
        return linear(found.reshape(x.shape[0], -1), look.out, look.out_bias)


class AttentionWeights:
    """The weights of an attention: those of queries, keys and values in one, and what comes out of it. What the score
    does to queries is done to their weights. No dataclass: `select` would take it for state."""

    def __init__(self, heads: int, width: int, qkv_weight: Tensor, qkv_bias: Tensor, out: Tensor, out_bias: Tensor):
        self.heads, self.width = heads, width
        self.qkv_weight, self.qkv_bias, self.out, self.out_bias = qkv_weight, qkv_bias, out, out_bias

    @classmethod
    def of(cls, part: nn.Module) -> "AttentionWeights":
        mixer = cast(MultiHead, part)
        width = mixer.query.out_features // mixer.heads
        scale = 1 / math.sqrt(width) if type(mixer.score) is ScaledDot else 1.0
        into = torch.cat([mixer.query.weight * scale, mixer.key.weight, mixer.value.weight])
        bias = torch.cat([mixer.query.bias * scale, mixer.key.bias, mixer.value.bias])
        return cls(mixer.heads, width, into, bias, mixer.out.weight, mixer.out.bias)

    @property
    def query(self) -> tuple[Tensor, Tensor]:
        """The weights and the bias of queries."""
        return self.qkv_weight[: self.heads * self.width], self.qkv_bias[: self.heads * self.width]

    @property
    def key_value(self) -> tuple[Tensor, Tensor]:
        """Those of keys and values."""
        return self.qkv_weight[self.heads * self.width :], self.qkv_bias[self.heads * self.width :]


class FusedFeedForward:
    """The weights of a block's feed-forward, at work."""

    def __init__(self, block: Standard):
        part = cast(PlainFeedForward, block.get_submodule("feed_forward"))
        self.activation: TensorFunction = part.activation
        self.up, self.up_bias = part.up.weight, part.up.bias
        self.down, self.down_bias = part.down.weight, part.down.bias

    def __call__(self, x: Any) -> Any:
        return linear(self.activation(linear(x, self.up, self.up_bias)), self.down, self.down_bias)


@dataclass(frozen=True)
class BatchMemory:
    """The memory of several sentences, as their hypotheses see it."""

    key: Float[Tensor, "S H P K"]
    value: Float[Tensor, "S H P K"]
    keep: Tensor | None
    weights: AttentionWeights

    def __call__(self, x: Rows) -> Rows:
        look, sentences = self.weights, self.key.shape[0]
        query = linear(x, *look.query).view(sentences, -1, look.heads, look.width)
        found = F.scaled_dot_product_attention(query.transpose(1, 2), self.key, self.value, self.keep, scale=1.0)
        return linear(found.transpose(1, 2).reshape(x.shape[0], -1), look.out, look.out_bias)


@dataclass(frozen=True)
class SingleMemory:
    """The memory of the only sentence: what a query is multiplied by, and what the weights of its places are."""

    heads: int
    keys: Float[Tensor, "HP D"]
    key_bias: Float[Tensor, "HP"]
    values: Float[Tensor, "D HP"]
    bias: Float[Tensor, "D"]

    def __call__(self, x: Rows) -> Rows:
        scores = F.linear(x, self.keys, self.key_bias)
        weights = scores.view(len(x), self.heads, -1).softmax(-1).view(scores.shape)
        return F.linear(weights, self.values, self.bias)


class SingleMemories:
    """Makes the memory of the only sentence for all layers at once."""

    def __init__(self, looks: Sequence[AttentionWeights]):
        self._looks = looks
        by_head = (len(looks), looks[0].heads, looks[0].width, -1)  # all layers are built alike
        self._into, self._into_bias = (
            torch.cat(each) for each in zip(*[look.key_value for look in looks], strict=True)
        )
        query = zip(*[look.query for look in looks], strict=True)
        self._query, self._query_bias = (torch.stack(each).view(by_head) for each in query)
        self._out = torch.stack([look.out.t() for look in looks]).reshape(by_head)

    def is_worth_folding(self, places: int) -> bool:
        """Whether so many places are few."""
        first = self._looks[0]
        return first.heads * places <= 2 * first.out.shape[0]

    def __call__(self, states: Float[Tensor, "P D"]) -> list[SingleMemory]:
        layers, heads, width, _ = self._query.shape
        parts = linear(states, self._into, self._into_bias).view(-1, layers, 2, heads, width)
        key, value = parts.permute(2, 1, 3, 0, 4)
        keys, biases = (key @ self._query).flatten(1, 2), (key @ self._query_bias).flatten(1)
        values = (value @ self._out).flatten(1, 2).mT
        made = zip(keys, biases, values, self._looks, strict=True)
        return [SingleMemory(heads, k, k_bias, v, look.out_bias) for k, k_bias, v, look in made]


class Residual:
    """A connection: what a sublayer gets, and what becomes of what it gives."""

    def __init__(self, around: nn.Module):
        self.norm, self.is_pre_norm = cast(LayerNorm, around.norm), type(around) is PreNorm
        shape, weight, bias, eps = self.norm.normalized_shape, self.norm.weight, self.norm.bias, self.norm.eps

        def normed(x: Tensor) -> Tensor:
            return torch.layer_norm(x, shape, weight, bias, eps)

        self.before: TensorFunction = normed if self.is_pre_norm else lambda x: x
        self.after: Callable[[Tensor, Tensor], Tensor] = torch.add if self.is_pre_norm else lambda x, y: normed(x + y)
