"""Decoder steps of a batch of one hypothesis, computed with NumPy.

A step multiplies one vector by a few small matrices. Each product takes microseconds, and torch's overhead per call is
as large. NumPy's overhead is a fraction of that, and its matrix-vector products are twice as fast. The weights are
those of the fused step, as arrays; the gain and bias of a norm before a product are folded into its weights. Products
that NumPy would split among threads stay with torch, which obeys its thread limit: those of wide models, and the head.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TypeGuard

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.decode.fused import FusedDecoder, FusedDecoderLayer
from saccade.decode.fused_cross import BatchCrossAttention, FoldedCrossAttention, MemoryFolding
from saccade.decode.loops import SingleHypothesis, SingleRow
from saccade.decode.single_head import SingleOutputHead, Vector
from saccade.parts.connections import FusedResidual
from saccade.parts.feed_forwards import FusedFeedForward, Gate
from saccade.parts.fused_forms import fused_form
from saccade.parts.heads import LinearHead, TiedHead
from saccade.parts.mixers.projections import AttentionProjections
from saccade.parts.norms import FusedNorm
from saccade.places import Memory

MAX_NUMPY_WEIGHTS = 1 << 18  # weights of one product; OpenBLAS starts a second thread at 460,800
INITIAL_CACHE_LENGTH = 24  # positions of the key/value cache; it doubles when it is full

VectorFunction = Callable[[Vector], Vector]
WeightAndBias = tuple[Tensor, Tensor]


def can_decode_single(fused: FusedDecoder) -> bool:
    """Whether NumPy can compute this decoder: all parts have fused forms, attention does not depend on positions,
    float32 weights in narrow layers, a head with accessible weights, norms of one kind, and either only post-norm or
    only pre-norm connections. Pre-norm also needs a final norm, because the mean of x may never be computed then."""
    return bool(fused.layers) and all(map(_is_fully_fused, fused.layers)) and _is_small(fused) and _is_uniform(fused)


def _is_fully_fused(layer: object) -> TypeGuard[FusedDecoderLayer]:
    if not isinstance(layer, FusedDecoderLayer) or not layer.feed_forward or not layer.cross_projections:
        return False
    return layer.self_projections is not None and layer.self_projections.score is None


def _is_small(fused: FusedDecoder) -> bool:
    layers = [layer for layer in fused.layers if _is_fully_fused(layer)]
    weights = [weight for layer in layers for weight in _weights_of(layer)]
    is_float32 = all(weight.dtype is torch.float32 and weight.is_cpu for weight in (fused.embed.table, *weights))
    is_narrow = all(weight.numel() <= MAX_NUMPY_WEIGHTS for weight in weights)
    return is_float32 and is_narrow and type(fused.head) in (LinearHead, TiedHead)


def _weights_of(layer: FusedDecoderLayer) -> list[Tensor]:
    assert layer.self_projections
    assert layer.feed_forward
    return [
        *(layer.self_projections.qkv_weight, layer.self_projections.out),
        *(layer.feed_forward.up, layer.feed_forward.down),
    ]


def _is_uniform(fused: FusedDecoder) -> bool:
    residuals = [residual for layer in fused.layers if _is_fully_fused(layer) for residual in layer.residuals]
    norms = [residual.norm for residual in residuals]
    pre_norms = {residual.is_pre_norm for residual in residuals}
    final_norm = fused_form(fused.final_norm, FusedNorm)
    if pre_norms == {True}:
        norms.append(final_norm)
    return len(pre_norms) == 1 and None not in norms and len({norm.centered for norm in norms if norm}) == 1


class SingleDecoder:
    """A fused decoder that decodes single hypotheses with NumPy."""

    def __init__(self, fused: FusedDecoder):
        self.fused, self.start, self.step = fused, fused.start, fused.step
        self._fused_layers = [layer for layer in fused.layers if _is_fully_fused(layer)]
        residual = self._fused_layers[0].residuals[0]
        assert residual.norm
        self.is_pre_norm = residual.is_pre_norm
        # with pre-norm and layer norms, x is kept without its mean, because every norm would subtract it anyway
        self.drops_mean = residual.is_pre_norm and residual.norm.centered

    def single(self, memory: Memory) -> SingleHypothesis:
        return SingleRow(self.fused, memory) if memory.places.padded else _NumpyHypothesis(self, memory)

    @cached_property
    def layers(self) -> "list[_Layer]":
        return [_Layer(layer) for layer in self._fused_layers]

    @cached_property
    def folding(self) -> MemoryFolding:
        return MemoryFolding([layer.cross_projections for layer in self.layers])

    def cross_attentions(self, memory: Memory) -> "Sequence[FoldedCrossAttention | BatchCrossAttention]":
        folded = self.fused.fold(memory, self.folding)
        return folded or [layer.prepare_cross_attention(memory) for layer in self._fused_layers]

    @cached_property
    def _final_norm(self) -> FusedNorm | None:
        return fused_form(self.fused.final_norm, FusedNorm)

    @cached_property
    def final_norm(self) -> VectorFunction:
        """The final norm; for pre-norm without gain and bias, which are folded into the head."""
        norm = self._final_norm
        if norm is None:
            return lambda x: x
        return _divide_by_deviation(norm.eps) if self.is_pre_norm else _Norm(norm)

    @cached_property
    def head(self) -> SingleOutputHead:
        head, norm = self.fused.head, self._final_norm
        assert isinstance(head, LinearHead | TiedHead)
        _, weight, bias = head.factors(self.fused.embed.table[:1])
        weight, bias = weight.detach(), weight.new_zeros(len(weight)) if bias is None else bias.detach()
        if self.is_pre_norm and norm:
            weight, bias = _fold_norm(norm, weight, bias)
        return SingleOutputHead(weight, bias)

    @property
    def cache_shape(self) -> tuple[int, ...]:
        projections = self._fused_layers[0].self_projections
        assert projections
        return len(self.layers), 2, projections.heads, INITIAL_CACHE_LENGTH, projections.width


class _NumpyHypothesis:
    """The key/value caches of all layers for one hypothesis."""

    def __init__(self, decoder: SingleDecoder, memory: Memory):
        self._embed, self._layers = decoder.fused.embed, decoder.layers
        self._final_norm, self._head = decoder.final_norm, decoder.head
        self._table, self._drops_mean = _array(self._embed.table), decoder.drops_mean
        dim = self._table.shape[1]
        self._mean_weights = np.full(dim, 1 / dim, np.float32)  # x · _mean_weights is the mean of x
        cross_attentions = decoder.cross_attentions(memory)
        self._cross = [layer.with_numpy(cross) for layer, cross in zip(self._layers, cross_attentions, strict=True)]
        self._cache = np.empty(decoder.cache_shape, np.float32)
        self._encodings = self._embed.encodings(1).numpy()
        self._at = 0

    def log_probs(self, token: int) -> Vector:
        with np.errstate(all="ignore"):  # the head checks that the result is finite
            return self._head.log_probs(self._hidden_state(token))

    def argmax(self, token: int) -> int:
        with np.errstate(all="ignore"):
            return self._head.argmax(self._hidden_state(token))

    def _hidden_state(self, token: int) -> Vector:
        at, self._at = self._at, self._at + 1
        if at >= len(self._encodings):
            self._encodings = self._embed.encodings(at + 1).numpy()
        if at == self._cache.shape[3]:
            self._cache = np.concatenate([self._cache, np.empty_like(self._cache)], 3)
        x = self._table[token] * self._embed.scale
        x += self._encodings[at]
        if self._drops_mean:
            x -= x.dot(self._mean_weights)
        for layer, cache, cross in zip(self._layers, self._cache, self._cross, strict=True):
            x = layer(x, cache, at, cross)
        return self._final_norm(x)


class _Layer:
    """One block of a decoder."""

    def __init__(self, layer: FusedDecoderLayer):
        residual_self, residual_cross, residual_feed_forward = (
            _FoldedPreNorm(residual) if residual.is_pre_norm else _PostNorm(residual) for residual in layer.residuals
        )
        assert _is_fully_fused(layer)
        projections, cross_projections, feed_forward = (
            layer.self_projections,
            layer.cross_projections,
            layer.feed_forward,
        )
        assert projections
        assert cross_projections
        assert feed_forward
        self._heads, self._width = projections.heads, projections.width
        self._qkv = residual_self.product(*residual_self.fold(projections.qkv_weight, projections.qkv_bias))
        self._out = _product(*residual_self.center(projections.out, projections.out_bias))
        self._feed_forward = _feed_forward(feed_forward, residual_feed_forward)
        self._adds = residual_self.add, residual_cross.add, residual_feed_forward.add
        self.cross_projections = residual_cross.fold_projections(cross_projections)
        # W x + b on the (normalized) input of the cross-attention
        self._cross_input_product = residual_cross.product

    def __call__(self, x: Vector, cache: np.ndarray, at: int, cross: VectorFunction) -> Vector:
        add_self, add_cross, add_feed_forward = self._adds
        x = add_self(x, self._attend_to_cache(x, cache, at))
        x = add_cross(x, cross(x))
        return add_feed_forward(x, self._feed_forward(x))

    def _attend_to_cache(self, x: Vector, cache: np.ndarray, at: int) -> Vector:
        """`cache` holds keys and values [2 H T K]."""
        qkv = self._qkv(x).reshape(3, self._heads, self._width)
        cache[:, :, at] = qkv[1:]
        keys, values = cache[:, :, : at + 1]
        return self._out(_attend(qkv[0], keys, values))

    def with_numpy(self, cross: FoldedCrossAttention | BatchCrossAttention) -> VectorFunction:
        """The cross-attention to the memory of one sentence, as a function of x."""
        if isinstance(cross, FoldedCrossAttention):
            heads, keys = cross.heads, self._cross_input_product(cross.keys, cross.key_bias)
            values = _product(cross.values, cross.bias)
            return lambda x: values(_softmax(keys(x).reshape(heads, -1)).ravel())
        projections, key, value = self.cross_projections, cross.key.numpy()[0], cross.value.numpy()[0]
        query, out = self._cross_input_product(*projections.query), _product(projections.out, projections.out_bias)
        return lambda x: out(_attend(query(x).reshape(projections.heads, projections.width), key, value))


class _FoldedPreNorm:
    """x + f(norm(x)). Gain and bias of the norm are folded into the first weights of f. With a layer norm, x is kept
    without its mean; the last weights of f are centered, so that the sum has no mean either."""

    add: Callable[[Vector, Vector], Vector] = np.add

    def __init__(self, residual: FusedResidual):
        assert residual.norm
        self._norm, self._inverse_dim = residual.norm, 1 / len(residual.norm.gain)

    def fold(self, weight: Tensor, bias: Tensor) -> WeightAndBias:
        """The first weights of f, to be applied by `product`."""
        return _fold_norm(self._norm, weight, bias)

    def center(self, weight: Tensor, bias: Tensor) -> WeightAndBias:
        """The last weights of f, with a layer norm so that its output has mean 0."""
        return (weight - weight.mean(0), bias - bias.mean()) if self._norm.centered else (weight, bias)

    def fold_projections(self, projections: AttentionProjections) -> AttentionProjections:
        """The query projection folded and the output projection centered; keys and values come from the memory."""
        qkv_weight, qkv_bias = (
            torch.cat(pair) for pair in zip(self.fold(*projections.query), projections.key_value, strict=True)
        )
        out, out_bias = self.center(projections.out, projections.out_bias)
        return AttentionProjections(projections.heads, projections.width, qkv_weight, qkv_bias, out, out_bias)

    def product(self, weight: Tensor, bias: Tensor) -> VectorFunction:
        """x → W x / deviation(x) + b."""
        w, b, inverse_dim, eps = _array(weight), _array(bias), self._inverse_dim, self._norm.eps

        def product(x: Vector) -> Vector:
            y = w.dot(x)
            y *= 1 / math.sqrt(x.dot(x) * inverse_dim + eps)
            y += b
            return y

        return product


class _PostNorm:
    """norm(x + f(x)). The weights of f stay as they are."""

    def __init__(self, residual: FusedResidual):
        assert residual.norm
        self._norm = _Norm(residual.norm)

    def add(self, x: Vector, y: Vector) -> Vector:
        return self._norm(x + y)

    def fold(self, weight: Tensor, bias: Tensor) -> WeightAndBias:
        return weight, bias

    center = fold

    def fold_projections(self, projections: AttentionProjections) -> AttentionProjections:
        return projections

    def product(self, weight: Tensor, bias: Tensor) -> VectorFunction:
        return _product(weight, bias)


class _Norm:
    """A norm with its gain and bias."""

    def __init__(self, norm: FusedNorm):
        self._gain, self._eps, self._centered = _array(norm.gain), norm.eps, norm.centered
        self._bias = np.zeros_like(self._gain) if norm.bias is None else _array(norm.bias)
        self._inverse_dim = 1 / len(self._gain)

    def __call__(self, x: Vector) -> Vector:
        if self._centered:
            x = x - np.add.reduce(x) * self._inverse_dim
        return x * (self._gain / math.sqrt(x.dot(x) * self._inverse_dim + self._eps)) + self._bias


def _divide_by_deviation(eps: float) -> VectorFunction:
    """A norm without gain and bias, for an x without its mean if the norm subtracts it."""
    return lambda x: x * (1 / math.sqrt(x.dot(x) / len(x) + eps))


def _fold_norm(norm: FusedNorm, weight: Tensor, bias: Tensor) -> WeightAndBias:
    """W (gain · x + c) + b = (W gain) x + (W c + b), where c is the bias of the norm. For an x without its mean, the
    mean of each row of W gain has no effect, so it is removed."""
    folded, bias = weight.detach() * norm.gain.detach(), bias.detach()
    if norm.bias is not None:
        bias = bias + weight.detach() @ norm.bias.detach()
    return folded - folded.mean(1, keepdim=True) if norm.centered else folded, bias


def _feed_forward(part: FusedFeedForward, residual: _FoldedPreNorm | _PostNorm) -> VectorFunction:
    up = residual.product(*residual.fold(part.up, _bias_of(part.up, part.up_bias)))
    down = _product(*residual.center(part.down, _bias_of(part.down, part.down_bias)))
    activate = _activation(part.activate, len(part.up))
    return lambda x: down(activate(up(x)))


def _bias_of(weight: Tensor, bias: Tensor | None) -> Tensor:
    return weight.new_zeros(len(weight)) if bias is None else bias


def _activation(function: Callable[[Tensor], Tensor], width: int) -> VectorFunction:
    """The activation function of a feed-forward, with NumPy if it is ReLU or a swish gate."""
    if function is F.relu:
        zeros = np.zeros(width, np.float32)  # np.maximum(…, 0) would convert the 0 to an array at each call
        return lambda x: np.maximum(x, zeros)
    if isinstance(function, Gate) and function.activation is F.silu:
        half = width // 2
        return lambda x: x[half:] * (x[:half] / (1 + np.exp(-x[:half])))
    return lambda x: function(torch.from_numpy(x)).numpy()


def _attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> Vector:
    """Attention of a query [H K] to keys and values [H T K]; the heads of the result are concatenated."""
    weights = _softmax(np.matmul(keys, query[:, :, None])[:, :, 0])
    return np.matmul(weights[:, None], values).ravel()


def _softmax(scores: np.ndarray) -> np.ndarray:
    """The softmax of each row. Subtracting the row's maximum takes as long as the rest, so it is done only if the sums
    without it are too large or too small."""
    weights = np.exp(scores)
    sums = weights.dot(_ones(scores.shape[1]))
    sum_list = sums.tolist()
    if not (min(sum_list) > 1e-30 and max(sum_list) < 1e30):
        weights = np.exp(scores - scores.max(1, keepdims=True))
        sums = weights.sum(1)
    weights /= sums[:, None]
    return weights


@lru_cache(1024)
def _ones(count: int) -> Vector:
    return np.ones(count, np.float32)


def _product(weight: Tensor, bias: Tensor) -> VectorFunction:
    """x → W x + b."""
    w, b = _array(weight), _array(bias)

    def product(x: Vector) -> Vector:
        y = w.dot(x)
        y += b
        return y

    return product


def _array(weight: Tensor) -> np.ndarray:
    return weight.detach().numpy()
