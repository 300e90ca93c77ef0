"""The encoder and the decoder step of a stack of standard blocks, computed in as few torch calls as possible.

In a decoder step of a small model for a few rows, torch's per-call overhead is larger than the computation. Here the
standard block is computed from the fused forms of its parts: the projections to queries, keys and values are one
product, with the scale of the scores folded into the query weights; the key/value caches of all layers are one tensor
with room for the next tokens; the memory of a single sentence is multiplied into its cross-attention weights. A part
without a fused form is computed by its module, and so is a block of another kind. The results equal those of the
modules up to rounding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypedDict, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.decode.fused_cross import BatchCrossAttention, FoldedCrossAttention, MemoryFolding, Rows
from saccade.decode.loops import SingleHypothesis, SingleRow
from saccade.models.assemble import Model
from saccade.models.blocks import Standard
from saccade.models.stacked import Stacked
from saccade.models.stacks import Layer, PlainStack
from saccade.notes import RecordingModule
from saccade.parts.connections import FusedResidual
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.fast_linear import linear
from saccade.parts.feed_forwards import FeedForward, FusedFeedForward
from saccade.parts.fused_forms import fused_form, is_exactly
from saccade.parts.mixers import Mixer
from saccade.parts.mixers.attend import MemoryKeys
from saccade.parts.mixers.projections import AttentionProjections
from saccade.parts.normalizers import masked_scores
from saccade.parts.positions import AddedEncodings
from saccade.places import DecoderState, Memory, PerSentence, Places, Progress, attention_mask
from saccade.shapes import Float, Ids, Int, Keep, States

CACHE_GROWTH = 8  # positions by which the key/value cache grows when it is full


# ── which models can be fused ─────────────────────────────────────────────────────────────────────


def can_fuse_encoder(model: Model) -> bool:
    """Whether the encoder is a stack, part of which this module can fuse, and none of its notes are recorded."""
    return _can_fuse(model.encoder)


def can_fuse_decoder(model: Model) -> bool:
    """Whether the decoder is a stack with cross-attention, part of which this module can fuse, and none of its notes
    are recorded."""
    return model.encoder is not None and _can_fuse(model.decoder)


def _can_fuse(side: object) -> bool:
    if not is_exactly(side, Stacked) or not is_exactly(side.stack, PlainStack):
        return False
    if not is_exactly(side.embedding, TokenEmbedding) or not is_exactly(side.embedding.table, nn.Embedding):
        return False
    if fused_form(side.position, AddedEncodings) is None and side.position.overrides("embed"):
        return False
    has_listeners = any(part._listeners for part in side.modules() if isinstance(part, RecordingModule))
    return not has_listeners and any(is_exactly(block, Standard) for block in side.layers)


# ── parts of both sides ───────────────────────────────────────────────────────────────────────────


class FusedEmbedding:
    """Token embedding plus what the position encoding adds to it."""

    def __init__(self, side: Stacked):
        assert isinstance(side.embedding, TokenEmbedding)
        self.table, self.scale = side.embedding.table.weight, side.embedding.scale
        self._added = fused_form(side.position, AddedEncodings)
        self._longest = side.longest
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
        count = max(count, min(2 * count, self._longest or 2 * count))
        return self._added(count, self.table) if self._added else self.table.new_zeros(count, self.table.shape[1])


def blocks_of(side: Stacked) -> Iterable[Layer]:
    return cast(Iterable[Layer], side.layers)  # nn.ModuleList does not know the type of its elements


def residuals_of(block: Standard, names: Sequence[str]) -> list[FusedResidual] | None:
    """The fused residual connections of a block; None if one of them has no fused form."""
    residuals = [fused_form(block.get_submodule(f"residual_{name}"), FusedResidual) for name in names]
    known = [residual for residual in residuals if residual]
    return known if len(known) == len(residuals) else None


# ── the encoder ───────────────────────────────────────────────────────────────────────────────────


class FusedEncoder:
    """The encoder of a model for which `can_fuse_encoder` holds, with its weights as they are now."""

    def __init__(self, model: Model):
        assert isinstance(model.encoder, Stacked)
        self._encoder = model.encoder
        self._embed = FusedEmbedding(self._encoder)
        self._layers = [fused_encoder_layer(block) for block in blocks_of(self._encoder)]

    def __call__(self, values: Ids, keep: Keep | None) -> Memory:
        length, places = values.shape[1], Places.of(values, keep)
        encodings = self._embed.encodings(length)
        x = self._embed(values, encodings[:length] if places.padded_on_the_right else encodings[places.at])
        mask = attention_mask(places, places, causal=False)
        kept = [x] if self._encoder.keeps_layers else []
        for layer in self._layers:
            x = layer(x, places, mask)
            if kept:
                kept.append(x)
        states, pool = self._encoder.final_norm(x), self._encoder.pool
        return Memory(states, places, pool(states, places) if pool else None, tuple(kept))


EncoderLayer = Callable[[States, Places, Tensor | None], States]


def fused_encoder_layer(block: Layer) -> EncoderLayer:
    """One block of an encoder: fused, or the module itself."""
    if is_exactly(block, Standard) and (residuals := residuals_of(block, ("self", "feed_forward"))):
        return FusedEncoderLayer(block, residuals)
    return ModuleEncoderLayer(block)


class ModuleEncoderLayer:
    """A block that is computed by its module."""

    def __init__(self, block: Layer):
        self._block = block

    def __call__(self, x: States, places: Places, mask: Tensor | None) -> States:
        return _whole(self._block, x, places)


def _whole(mixer: Mixer, x: States, places: Places) -> States:
    """The output of a mixer or block for whole sequences."""
    return mixer(x, places, mixer.start(None, x.shape[0]))[0]


class FusedEncoderLayer:
    """A block whose residual connections have fused forms."""

    def __init__(self, block: Standard, residuals: list[FusedResidual]):
        self._residuals = residuals
        self._mixer, self._feed_forward = block.mixer("self"), block.feed_forward
        self._projections = fused_form(self._mixer, AttentionProjections)
        self._fused_feed_forward = fused_form(self._feed_forward, FusedFeedForward)

    def __call__(self, x: States, places: Places, mask: Tensor | None) -> States:
        residual_self, residual_feed_forward = self._residuals
        h = residual_self.before(x)
        mixed = (
            self._attend(self._projections, h, places, mask) if self._projections else _whole(self._mixer, h, places)
        )
        x = residual_self.after(x, mixed)
        h = residual_feed_forward.before(x)
        fused = self._fused_feed_forward
        return residual_feed_forward.after(x, fused(h) if fused else self._feed_forward(h, places))

    def _attend(self, projections: AttentionProjections, x: States, places: Places, mask: Tensor | None) -> States:
        qkv = linear(x, projections.qkv_weight, projections.qkv_bias)
        query, key, value = qkv.unflatten(2, (3, projections.heads, projections.width)).permute(2, 0, 3, 1, 4).unbind()
        if projections.score:
            query, key, value = turned(projections, query, key, value, places)
            bias = projections.position.bias(query, places, places)
            mask = mask if bias is None else masked_scores(bias, mask)
        heads = F.scaled_dot_product_attention(query, key, value, mask, scale=1.0)
        return linear(heads.transpose(1, 2).flatten(2), projections.out, projections.out_bias)


def turned(
    projections: AttentionProjections, query: Tensor, key: Tensor, value: Tensor, places: Places
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of an attention with positions, after the position encoding and the score prepared
    them."""
    assert projections.score is not None
    position = projections.position
    query, key = position.turn(query, places, "query"), position.turn(key, places, "key")
    return projections.score.query(query), projections.score.key(key), position.turn(value, places, "value")


# ── the decoder ───────────────────────────────────────────────────────────────────────────────────


class FusedState(TypedDict):
    """The decoder state. `cache` holds the keys and values of all fused self-attentions [B layers 2 H T K], where T
    grows by CACHE_GROWTH; the first `at` positions are filled. `layers` has an entry for each layer: the prepared
    cross-attentions and the states of what modules compute."""

    at: int
    cache: Tensor
    layers: tuple[DecoderState, ...]


class FusedDecoder:
    """The decoder and the head of a model for which `can_fuse_decoder` holds, with its weights as they are now. A step
    modifies the state it is given, so each state can be used for one step only."""

    def __init__(self, model: Model):
        assert isinstance(model.decoder, Stacked)
        self.final_norm, self.head = model.decoder.final_norm, model.head
        self.embed = FusedEmbedding(model.decoder)
        self.layers = _decoder_layers(model.decoder)
        fused = [layer for layer in self.layers if isinstance(layer, FusedDecoderLayer)]
        caching = [layer.self_projections for layer in fused if layer.self_projections]
        self._cache_shape = (len(caching), 2, caching[0].heads, CACHE_GROWTH, caching[0].width) if caching else None
        self._needs_places = len(caching) < len(self.layers) or any(
            layer.cross_projections is None
            or layer.feed_forward is None
            or (layer.self_projections and layer.self_projections.score)
            for layer in fused
        )
        self.folding = self._memory_folding([layer.cross_projections for layer in fused])

    def _memory_folding(self, layers: Sequence[AttentionProjections | None]) -> MemoryFolding | None:
        """None if the cross-attentions differ, or if some are computed by their modules."""
        known = [projections for projections in layers if projections]
        shapes = {(projections.heads, projections.width) for projections in known}
        return MemoryFolding(known) if len(known) == len(self.layers) and len(shapes) == 1 else None

    def start(self, memory: Memory, rows: int) -> FusedState:
        shape = (rows, *self._cache_shape) if self._cache_shape else (rows, 0, 2, 1, CACHE_GROWTH, 1)
        folded = self.fold(memory, self.folding)
        states = [
            layer.start(memory, rows, None if folded is None else folded[i]) for i, layer in enumerate(self.layers)
        ]
        return {"at": 0, "cache": self.embed.table.new_empty(shape), "layers": tuple(states)}

    def fold(self, memory: Memory, folding: MemoryFolding | None) -> list[FoldedCrossAttention] | None:
        """The memory of a single sentence without padding folded into the cross-attention weights of all layers, if it
        is short enough for that to save work."""
        sentences, length, _ = memory.states.shape
        if folding is None or memory.places.padded or sentences != 1 or not folding.is_worth_it(length):
            return None
        return folding.fold(memory.states[0])

    def single(self, memory: Memory) -> SingleHypothesis:
        return SingleRow(self, memory)

    def step(self, tokens: Int[Tensor, "B"], state: FusedState) -> tuple[Float[Tensor, "B V"], FusedState]:
        at, cache = state["at"], state["cache"]
        if at == cache.shape[4]:
            cache = F.pad(cache, (0, 0, 0, CACHE_GROWTH))
        places = _places_of_step(tokens, at) if self._needs_places else None
        x = self.embed(tokens, self.embed.encodings(at + 1)[at])
        caches = iter(cache.unbind(1))
        states = []
        for layer, layer_state in zip(self.layers, state["layers"], strict=True):
            x, layer_state = layer(x, caches, at, places, layer_state)
            states.append(layer_state)
        new_state: FusedState = {"at": at + 1, "cache": cache, "layers": tuple(states)}
        return self.head.log_probs(self.final_norm(x)), new_state


def _places_of_step(tokens: Int[Tensor, "B"], at: int) -> Places:
    """The places of one new token per row, all at the same position."""
    return Places.of(tokens[:, None], None, Progress(torch.full_like(tokens, at), at))


def _decoder_layers(decoder: Stacked) -> "list[FusedDecoderLayer | ModuleDecoderLayer]":
    """The blocks of a decoder, each fused as far as possible. The fused self-attentions share one cache, so all have
    heads of the same number and width; others are computed by their modules."""
    layers: list[FusedDecoderLayer | ModuleDecoderLayer] = []
    cached: tuple[int, int] | None = None
    for block in blocks_of(decoder):
        layer = _decoder_layer(block)
        if isinstance(layer, FusedDecoderLayer) and layer.self_projections:
            shape = layer.self_projections.heads, layer.self_projections.width
            cached = cached or shape
            if shape != cached:
                layer.self_projections = None
        layers.append(layer)
    return layers


def _decoder_layer(block: Layer) -> "FusedDecoderLayer | ModuleDecoderLayer":
    """One block of a decoder: fused, or the module itself."""
    if is_exactly(block, Standard) and (residuals := residuals_of(block, ("self", "cross", "feed_forward"))):
        return FusedDecoderLayer(block, residuals)
    return ModuleDecoderLayer(block)


class ModuleDecoderLayer:
    """A block that is computed by its module."""

    def __init__(self, block: Layer):
        self._block = block

    def start(self, memory: Memory, rows: int, folded: FoldedCrossAttention | None) -> DecoderState:
        return self._block.start(memory, rows)

    def __call__(
        self, x: Rows, caches: Iterator[Tensor], at: int, places: Places | None, state: DecoderState
    ) -> tuple[Rows, DecoderState]:
        return _one_step(self._block, x, places, state)


class LayerState(TypedDict):
    """The state of a fused layer: that of the self-attention if its module computes it, and of the cross-attention."""

    own: DecoderState
    cross: DecoderState


class FusedDecoderLayer:
    """A block of a decoder whose residual connections have fused forms. `self_projections`, `cross_projections` and
    `feed_forward` are the fused forms of its parts, None where a part has none and its module computes it."""

    def __init__(self, block: Standard, residuals: list[FusedResidual]):
        self.residuals = residuals
        self._self, self._cross, self._feed_forward = block.mixer("self"), block.mixer("cross"), block.feed_forward
        self.self_projections = fused_form(self._self, AttentionProjections)
        self.cross_projections = fused_form(self._cross, AttentionProjections)
        self.feed_forward = fused_form(self._feed_forward, FusedFeedForward)

    def start(self, memory: Memory, rows: int, folded: FoldedCrossAttention | None) -> LayerState:
        if self.cross_projections:
            cross = PerSentence(folded or self.prepare_cross_attention(memory))
        else:
            cross = self._cross.start(memory, rows)
        own = None if self.self_projections else self._self.start(None, rows)
        return {"own": own, "cross": cross}

    def prepare_cross_attention(self, memory: Memory) -> BatchCrossAttention:
        """The cross-attention to the memory of a batch."""
        assert self.cross_projections
        state = self._cross.start(memory, 1)
        assert isinstance(state, PerSentence)
        keys: MemoryKeys = state.value
        mask = attention_mask(memory.places, memory.places, causal=False)
        return BatchCrossAttention(keys.key, keys.value, mask, self.cross_projections)

    def __call__(
        self, x: Rows, caches: Iterator[Tensor], at: int, places: Places | None, state: LayerState
    ) -> tuple[Rows, LayerState]:
        residual_self, residual_cross, residual_feed_forward = self.residuals
        own, cross = state["own"], state["cross"]
        h = residual_self.before(x)
        if self.self_projections:
            y = self._attend_to_cache(self.self_projections, h, next(caches), at, places)
        else:
            y, own = _one_step(self._self, h, places, own)
        x = residual_self.after(x, y)
        h = residual_cross.before(x)
        if self.cross_projections:
            y = cross.value(h)
        else:
            y, cross = _one_step(self._cross, h, places, cross)
        x = residual_cross.after(x, y)
        h = residual_feed_forward.before(x)
        y = self.feed_forward(h) if self.feed_forward else _one_position(self._feed_forward, h, places)
        return residual_feed_forward.after(x, y), {"own": own, "cross": cross}

    def _attend_to_cache(
        self,
        projections: AttentionProjections,
        x: Rows,
        cache: Float[Tensor, "B 2 H T K"],
        at: int,
        places: Places | None,
    ) -> Rows:
        qkv = linear(x, projections.qkv_weight, projections.qkv_bias)
        qkv = qkv.view(-1, 3, projections.heads, 1, projections.width)
        query, bias = qkv[:, 0], None
        if projections.score:
            assert places is not None
            query, key, value = turned(projections, query, qkv[:, 1], qkv[:, 2], places)
            cache[:, 0, :, at : at + 1], cache[:, 1, :, at : at + 1] = key, value
            bias = projections.position.bias(query, places, _places_so_far(places))
        else:
            cache[..., at : at + 1, :] = qkv[:, 1:]
        keys, values = cache[..., : at + 1, :].unbind(1)
        heads = F.scaled_dot_product_attention(query, keys, values, bias, scale=1.0)
        return linear(heads.reshape(x.shape[0], -1), projections.out, projections.out_bias)


def _one_step(mixer: Mixer, x: Rows, places: Places | None, state: DecoderState) -> tuple[Rows, DecoderState]:
    """One step of a mixer or block that its module computes."""
    assert places is not None  # see `FusedDecoder._needs_places`
    y, state = mixer(x[:, None], places, state)
    return y[:, 0], state


def _one_position(feed_forward: FeedForward, x: Rows, places: Places | None) -> Rows:
    """One position of a feed-forward that its module computes."""
    assert places is not None
    return feed_forward(x[:, None], places)[:, 0]


def _places_so_far(places: Places) -> Places:
    """The places of all keys in the cache, given those of the last one. The cache is contiguous and unpadded."""
    at = torch.arange(places.end, device=places.at.device).expand(places.at.shape[0], -1)
    return Places(torch.ones_like(at, dtype=torch.bool), at, padded=False, end=places.end)
