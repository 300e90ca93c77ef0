"""The encoder and the decoder step of a standard Transformer, computed in as few torch calls as possible.

In a decoder step of a small model for a few rows, torch's per-call overhead is larger than the computation. Here the
standard block is computed directly from its weights: the projections to queries, keys and values are one product, with
the scale of the scores folded into the query weights; the key/value caches of all layers are one tensor with room for
the next tokens; the memory of a single sentence is multiplied into its cross-attention weights. The results equal
those of the modules up to rounding. A model with any other part is computed by its modules.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.decode.loops import SingleHypothesis, SingleRow
from saccade.models.assemble import Model
from saccade.models.blocks import Standard
from saccade.models.stacked import Stacked
from saccade.models.stacks import PlainStack
from saccade.models.submodules import submodule
from saccade.notes import RecordingModule
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
Rows = Float[Tensor, "B D"]  # the vector of one position for each hypothesis
CACHE_GROWTH = 8  # positions by which the key/value cache grows when it is full


# ── which models can be fused ─────────────────────────────────────────────────────────────────────


def can_fuse_encoder(model: Model) -> bool:
    """Whether the encoder consists only of parts that this module computes, and none of its notes are recorded."""
    return _can_fuse(model.encoder, ("self",))


def can_fuse_decoder(model: Model) -> bool:
    """Whether the decoder consists only of parts that this module computes, and none of its notes are recorded."""
    return _can_fuse(model.decoder, ("self", "cross"))


def _can_fuse(side: object, mixers: tuple[str, ...]) -> bool:
    if type(side) is not Stacked or type(side.stack) is not PlainStack or type(side.embedding) is not TokenEmbedding:
        return False
    if type(side.position) not in (Sinusoidal, Learned) or type(side.final_norm) not in (LayerNorm, nn.Identity):
        return False
    has_listeners = any(part._listeners for part in side.modules() if isinstance(part, RecordingModule))
    return not has_listeners and all(_can_fuse_block(block, mixers) for block in side.layers)


def _can_fuse_block(block: nn.Module, mixers: tuple[str, ...]) -> bool:
    if type(block) is not Standard or block.mixers != mixers:
        return False
    return (
        all(_can_fuse_residual(block.get_submodule(f"residual_{name}")) for name in (*mixers, "feed_forward"))
        and all(_can_fuse_attention(block.get_submodule(name)) for name in mixers)
        and type(block.get_submodule("feed_forward")) is PlainFeedForward
    )


def _can_fuse_residual(connection: nn.Module) -> bool:
    return (type(connection) is PreNorm or type(connection) is PostNorm) and type(connection.norm) is LayerNorm


def _can_fuse_attention(mixer: nn.Module) -> bool:
    if type(mixer) is not MultiHead or mixer.key.out_features != mixer.value.out_features:
        return False
    return type(mixer.score) in (Dot, ScaledDot) and type(mixer.normalizer) is Softmax


# ── the encoder ───────────────────────────────────────────────────────────────────────────────────


class FusedEncoder:
    """The encoder of a model for which `can_fuse_encoder` holds, with its weights as they are now."""

    def __init__(self, model: Model):
        assert isinstance(model.encoder, Stacked)
        self._encoder = model.encoder
        self._embed = FusedEmbedding(self._encoder)
        self._layers = [_FusedEncoderLayer(block) for block in self._encoder.layers]

    def __call__(self, values: Ids, keep: Keep | None) -> Memory:
        length, places = values.shape[1], Places.of(values, keep)
        x = self._embed(values, self._embed.encodings(length)[:length])
        mask = places.keep[:, None, None] if places.padded else None
        outputs = [x]
        for layer in self._layers:
            outputs.append(layer(outputs[-1], mask))
        states, pool = self._encoder.final_norm(outputs[-1]), self._encoder.pool
        return Memory(states, places, pool(states, places) if pool else None, tuple(outputs))


class _FusedEncoderLayer:
    """One block of an encoder."""

    def __init__(self, block: nn.Module):
        self._projections = AttentionProjections.of(submodule(block, "self", MultiHead))
        self._feed_forward = FusedFeedForward(submodule(block, "feed_forward", PlainFeedForward))
        self._residuals = [Residual(block.get_submodule(f"residual_{name}")) for name in ("self", "feed_forward")]

    def __call__(self, x: States, mask: Tensor | None) -> States:
        residual_self, residual_feed_forward = self._residuals
        x = residual_self.after(x, self._attend(residual_self.before(x), mask))
        return residual_feed_forward.after(x, self._feed_forward(residual_feed_forward.before(x)))

    def _attend(self, x: States, mask: Tensor | None) -> States:
        projections = self._projections
        qkv = linear(x, projections.qkv_weight, projections.qkv_bias)
        query, key, value = qkv.unflatten(2, (3, projections.heads, projections.width)).permute(2, 0, 3, 1, 4).unbind()
        heads = F.scaled_dot_product_attention(query, key, value, mask, scale=1.0)
        return linear(heads.transpose(1, 2).flatten(2), projections.out, projections.out_bias)


# ── the decoder ───────────────────────────────────────────────────────────────────────────────────


class FusedState(TypedDict):
    """The decoder state. `cache` holds the keys and values of all layers [B layers 2 H T K], where T grows by
    CACHE_GROWTH; the first `at` positions are filled. `cross_attentions` has one entry per layer."""

    at: int
    cache: Tensor
    cross_attentions: tuple[PerSentence, ...]


class FusedDecoder:
    """The decoder and the head of a model for which `can_fuse_decoder` holds, with its weights as they are now. A step
    modifies the state it is given, so each state can be used for one step only."""

    def __init__(self, model: Model):
        assert isinstance(model.decoder, Stacked)
        self.final_norm, self.head = model.decoder.final_norm, model.head
        self.embed = FusedEmbedding(model.decoder)
        self.layers = [FusedDecoderLayer(block) for block in model.decoder.layers]
        self._folding = MemoryFolding([layer.cross_projections for layer in self.layers])

    def start(self, memory: Memory, rows: int) -> FusedState:
        projections = self.layers[0].self_projections
        shape = (rows, len(self.layers), 2, projections.heads, CACHE_GROWTH, projections.width)
        cross_attentions = self.prepare_cross_attentions(memory, self._folding)
        return {
            "at": 0,
            "cache": self.embed.table.new_empty(shape),
            "cross_attentions": tuple(map(PerSentence, cross_attentions)),
        }

    def prepare_cross_attentions(
        self, memory: Memory, folding: "MemoryFolding"
    ) -> "Sequence[FoldedCrossAttention | BatchCrossAttention]":
        """The cross-attention of each layer to this memory. A single sentence without padding is folded into the
        weights if it is short enough for that to save work."""
        sentences, length, _ = memory.states.shape
        if not memory.places.padded and sentences == 1 and folding.is_worth_it(length):
            return folding.fold(memory.states[0])
        return [layer.prepare_cross_attention(memory) for layer in self.layers]

    def single(self, memory: Memory) -> SingleHypothesis:
        return SingleRow(self, memory)

    def step(self, tokens: Int[Tensor, "B"], state: FusedState) -> tuple[Float[Tensor, "B V"], FusedState]:
        at, cache = state["at"], state["cache"]
        if at == cache.shape[4]:
            cache = F.pad(cache, (0, 0, 0, CACHE_GROWTH))
        x = self.embed(tokens, self.embed.encodings(at + 1)[at])
        for layer, layer_cache, cross in zip(self.layers, cache.unbind(1), state["cross_attentions"], strict=True):
            x = layer(x, layer_cache, at, cross.value)
        new_state: FusedState = {"at": at + 1, "cache": cache, "cross_attentions": state["cross_attentions"]}
        return self.head.log_probs(self.final_norm(x)), new_state


class FusedEmbedding:
    """Token embedding plus position encoding."""

    def __init__(self, side: Stacked):
        assert isinstance(side.embedding, TokenEmbedding)
        self.table, self.scale = side.embedding.table.weight, side.embedding.scale
        self._position, self._longest = side.position, side.longest
        self._encodings = self._compute_encodings(min(32, self._longest or 32))

    def __call__(self, tokens: Int[Tensor, "*n"], encodings: Float[Tensor, "*m D"]) -> Float[Tensor, "*n D"]:
        return torch.add(encodings, F.embedding(tokens, self.table), alpha=self.scale)

    def encodings(self, count: int) -> Float[Tensor, "T D"]:
        """The encodings of at least the first `count` positions."""
        encodings = self._encodings  # read once: other threads may replace it
        if count > len(encodings):
            self._encodings = encodings = self._compute_encodings(count)
        return encodings

    def _compute_encodings(self, count: int) -> Float[Tensor, "T D"]:
        """The encodings of 2 · `count` positions, or of the maximum length if that is less. If `count` exceeds the
        maximum length, the position encoding raises its error."""
        longest = self._longest or 2 * count
        zeros = self.table.new_zeros(1, max(count, min(2 * count, longest)), self.table.shape[1])
        return self._position.embed(zeros, Places.of(zeros, None))[0]


class FusedDecoderLayer:
    """One block of a decoder."""

    def __init__(self, block: nn.Module):
        self._cross = submodule(block, "cross", MultiHead)
        self.self_projections = AttentionProjections.of(submodule(block, "self", MultiHead))
        self.cross_projections = AttentionProjections.of(self._cross)
        self.feed_forward = FusedFeedForward(submodule(block, "feed_forward", PlainFeedForward))
        names = ("self", "cross", "feed_forward")
        self.residuals = [Residual(block.get_submodule(f"residual_{name}")) for name in names]

    def prepare_cross_attention(self, memory: Memory) -> "BatchCrossAttention":
        state = self._cross.start(memory, 1)
        assert isinstance(state, PerSentence)
        keys: MemoryKeys = state.value
        mask = memory.places.keep[:, None, None] if memory.places.padded else None
        return BatchCrossAttention(keys.key, keys.value, mask, self.cross_projections)

    def __call__(self, x: Rows, cache: Tensor, at: int, cross_attention: TensorFunction) -> Rows:
        residual_self, residual_cross, residual_feed_forward = self.residuals
        x = residual_self.after(x, self._attend_to_cache(residual_self.before(x), cache, at))
        x = residual_cross.after(x, cross_attention(residual_cross.before(x)))
        return residual_feed_forward.after(x, self.feed_forward(residual_feed_forward.before(x)))

    def _attend_to_cache(self, x: Rows, cache: Float[Tensor, "B 2 H T K"], at: int) -> Rows:
        projections = self.self_projections
        qkv = linear(x, projections.qkv_weight, projections.qkv_bias)
        qkv = qkv.view(-1, 3, projections.heads, 1, projections.width)
        cache[..., at : at + 1, :] = qkv[:, 1:]
        keys, values = cache[..., : at + 1, :].unbind(1)
        heads = F.scaled_dot_product_attention(qkv[:, 0], keys, values, scale=1.0)
        return linear(heads.reshape(x.shape[0], -1), projections.out, projections.out_bias)


class AttentionProjections:
    """The projection weights of an attention: those to queries, keys and values as one matrix, and the output
    projection. `width` is the width K of a head. The scale of the scores is folded into the query weights. This is not
    a dataclass, because `select` would treat a dataclass as decoder state."""

    def __init__(self, heads: int, width: int, qkv_weight: Tensor, qkv_bias: Tensor, out: Tensor, out_bias: Tensor):
        self.heads, self.width = heads, width
        self.qkv_weight, self.qkv_bias, self.out, self.out_bias = qkv_weight, qkv_bias, out, out_bias

    @classmethod
    def of(cls, mixer: MultiHead) -> "AttentionProjections":
        width = mixer.query.out_features // mixer.heads
        scale = 1 / math.sqrt(width) if type(mixer.score) is ScaledDot else 1.0
        weight = torch.cat([mixer.query.weight * scale, mixer.key.weight, mixer.value.weight])
        bias = torch.cat([mixer.query.bias * scale, mixer.key.bias, mixer.value.bias])
        return cls(mixer.heads, width, weight, bias, mixer.out.weight, mixer.out.bias)

    @property
    def query(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the query projection."""
        return self.qkv_weight[: self.heads * self.width], self.qkv_bias[: self.heads * self.width]

    @property
    def key_value(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the key and value projections."""
        return self.qkv_weight[self.heads * self.width :], self.qkv_bias[self.heads * self.width :]


class FusedFeedForward:
    """A feed-forward without its dropout."""

    def __init__(self, part: PlainFeedForward):
        self.activation: TensorFunction = part.activation
        self.up, self.up_bias = part.up.weight, part.up.bias
        self.down, self.down_bias = part.down.weight, part.down.bias

    def __call__(self, x: Tensor) -> Tensor:
        return linear(self.activation(linear(x, self.up, self.up_bias)), self.down, self.down_bias)


@dataclass(frozen=True)
class BatchCrossAttention:
    """Cross-attention to the memory of a batch. All hypotheses of a sentence are queries to its one row. n counts
    sentences, S source positions."""

    key: Float[Tensor, "n H S K"]
    value: Float[Tensor, "n H S K"]
    mask: Tensor | None
    projections: AttentionProjections

    def __call__(self, x: Rows) -> Rows:
        projections, sentences = self.projections, self.key.shape[0]
        query = linear(x, *projections.query).view(sentences, -1, projections.heads, projections.width)
        heads = F.scaled_dot_product_attention(query.transpose(1, 2), self.key, self.value, self.mask, scale=1.0)
        return linear(heads.transpose(1, 2).reshape(x.shape[0], -1), projections.out, projections.out_bias)


@dataclass(frozen=True)
class FoldedCrossAttention:
    """Cross-attention to the memory of a single sentence of S positions, folded into two matrices: softmax over the
    positions of (keys x + key_bias), times `values`, plus `bias`."""

    heads: int
    keys: Float[Tensor, "HS D"]
    key_bias: Float[Tensor, "HS"]
    values: Float[Tensor, "D HS"]
    bias: Float[Tensor, "D"]

    def __call__(self, x: Rows) -> Rows:
        scores = F.linear(x, self.keys, self.key_bias)
        weights = scores.view(len(x), self.heads, -1).softmax(-1).view(scores.shape)
        return F.linear(weights, self.values, self.bias)


class MemoryFolding:
    """Folds the memory of a single sentence into the cross-attention weights of all layers at once. All layers have the
    same shapes."""

    def __init__(self, layers: Sequence[AttentionProjections]):
        self._layers = layers
        by_head = (len(layers), layers[0].heads, layers[0].width, -1)
        key_values = zip(*[projections.key_value for projections in layers], strict=True)
        self._key_value, self._key_value_bias = (torch.cat(tensors) for tensors in key_values)
        queries = zip(*[projections.query for projections in layers], strict=True)
        self._query, self._query_bias = (torch.stack(tensors).view(by_head) for tensors in queries)
        self._out = torch.stack([projections.out.t() for projections in layers]).reshape(by_head)

    def is_worth_it(self, length: int) -> bool:
        """Whether a memory of this length is short enough for folding to save work: heads · length ≤ 2 · D. The two
        folded matrices have heads · length × D entries each; they replace two D × D projections and the attention."""
        first = self._layers[0]
        return first.heads * length <= 2 * first.out.shape[0]

    def fold(self, states: Float[Tensor, "S D"]) -> list[FoldedCrossAttention]:
        layers, heads, width, _ = self._query.shape
        key_value = linear(states, self._key_value, self._key_value_bias).view(-1, layers, 2, heads, width)
        key, value = key_value.permute(2, 1, 3, 0, 4)
        keys, key_biases = (key @ self._query).flatten(1, 2), (key @ self._query_bias).flatten(1)
        values = (value @ self._out).flatten(1, 2).mT
        folded = zip(keys, key_biases, values, self._layers, strict=True)
        return [FoldedCrossAttention(heads, k, k_bias, v, layer.out_bias) for k, k_bias, v, layer in folded]


class Residual:
    """A residual connection: `before` maps x to the input of the sublayer, `after` adds the sublayer's output to x."""

    def __init__(self, connection: nn.Module):
        assert isinstance(connection, PreNorm | PostNorm)
        assert isinstance(connection.norm, LayerNorm)
        self.norm, self.is_pre_norm = connection.norm, isinstance(connection, PreNorm)
        shape, weight, bias, eps = self.norm.normalized_shape, self.norm.weight, self.norm.bias, self.norm.eps

        def normed(x: Tensor) -> Tensor:
            return torch.layer_norm(x, shape, weight, bias, eps)

        self.before: TensorFunction = normed if self.is_pre_norm else lambda x: x
        self.after: Callable[[Tensor, Tensor], Tensor] = torch.add if self.is_pre_norm else lambda x, y: normed(x + y)
