"""A single hypothesis, with NumPy.

One vector goes through a few small matrices, each in microseconds, and torch takes as long to be asked. NumPy is asked
in a fraction of that, and its products of a matrix and a vector are twice as fast. The weights are those of the fused
step, seen as arrays; norms that come before a product are multiplied into it. Products that NumPy would share among
threads stay with torch, which keeps to the threads it has been given: those of wide models, and the head's.
"""

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.decode.fused import (
    AttentionWeights,
    BatchMemory,
    FusedDecoder,
    FusedDecoderLayer,
    FusedFeedForward,
    Residual,
    SingleMemories,
    SingleMemory,
)
from saccade.decode.loops import SingleHypothesis, SingleRow
from saccade.decode.single_head import SingleOutputHead, Vector
from saccade.parts.heads import LinearHead, TiedHead
from saccade.parts.norms import LayerNorm
from saccade.places import Memory

MAX_NUMPY_WEIGHTS = 1 << 18  # weights of a product with NumPy; OpenBLAS wakes a second thread for 460,800
INITIAL_CACHE_LENGTH = 24  # places that keys and values have at first

VectorFunction = Callable[[Vector], Vector]
MatrixAndBias = tuple[Tensor, Tensor]  # of a product: a matrix and a bias


def can_decode_single(fused: FusedDecoder) -> bool:
    """Whether NumPy knows this type of weights, the layers are narrow and alike, and the head's weights are to be had.
    Where norms come first there must be a last one, since what they take away is never added."""
    weights = [
        weight for layer in fused.layers for weight in (layer.self_attention.qkv_weight, layer.self_attention.out)
    ]
    weights += [weight for layer in fused.layers for weight in (layer.feed_forward.up, layer.feed_forward.down)]
    known = all(weight.dtype is torch.float32 and weight.is_cpu for weight in (fused.embed.table, *weights))
    first = {around.is_pre_norm for layer in fused.layers for around in layer.residuals}
    alike = first == {False} or (first == {True} and type(fused.final_norm) is LayerNorm)
    narrow = all(weight.numel() <= MAX_NUMPY_WEIGHTS for weight in weights)
    return known and alike and narrow and type(fused.head) in (LinearHead, TiedHead)


class SingleDecoder:
    """A fused step, and single hypotheses in arrays."""

    def __init__(self, fused: FusedDecoder):
        self.fused, self.start, self.step = fused, fused.start, fused.step
        self.is_pre_norm = fused.layers[0].residuals[0].is_pre_norm

    def single(self, memory: Memory) -> SingleHypothesis:
        return SingleRow(self.fused, memory) if memory.places.padded else _NumpyHypothesis(self, memory)

    @cached_property
    def layers(self) -> "list[_Layer]":
        return [_Layer(layer) for layer in self.fused.layers]

    @cached_property
    def memories(self) -> SingleMemories:
        return SingleMemories([layer.cross for layer in self.layers])

    @cached_property
    def final_norm(self) -> VectorFunction:
        if self.is_pre_norm:
            return _unit(cast(LayerNorm, self.fused.final_norm).eps)
        return _Norm(self.fused.final_norm) if isinstance(self.fused.final_norm, LayerNorm) else lambda x: x

    @cached_property
    def head(self) -> SingleOutputHead:
        _, weight, bias = cast(LinearHead | TiedHead, self.fused.head).factors(self.fused.embed.table[:1])
        weight, bias = weight.detach(), weight.new_zeros(len(weight)) if bias is None else bias.detach()
        return SingleOutputHead(
            *(_with_norm(cast(LayerNorm, self.fused.final_norm), weight, bias) if self.is_pre_norm else (weight, bias))
        )


class _NumpyHypothesis:
    """What is written so far: keys and values of every layer. Where norms come first they never see the mean of x, so
    it has none."""

    def __init__(self, steps: SingleDecoder, memory: Memory):
        self._embed, self._layers, self._close, self._head = (
            steps.fused.embed,
            steps.layers,
            steps.final_norm,
            steps.head,
        )
        self._table, self._has_mean = _array(self._embed.table), not steps.is_pre_norm
        self._share = np.full(self._table.shape[1], 1 / self._table.shape[1], np.float32)
        there = steps.fused.prepare_memory(memory, steps.memories)
        self._looks = [layer.cross_attention(each) for layer, each in zip(self._layers, there, strict=True)]
        own = steps.fused.layers[0].self_attention
        self._past = np.empty((len(self._layers), 2, own.heads, INITIAL_CACHE_LENGTH, own.width), np.float32)
        self._places = self._embed.places(1).numpy()
        self._at = 0

    def log_probs(self, token: int) -> Vector:
        with np.errstate(all="ignore"):  # the head looks whether all is finite
            return self._head.log_probs(self._hidden(token))

    def argmax(self, token: int) -> int:
        with np.errstate(all="ignore"):
            return self._head.argmax(self._hidden(token))

    def _hidden(self, token: int) -> Vector:
        at, self._at = self._at, self._at + 1
        if at >= len(self._places):
            self._places = self._embed.places(at + 1).numpy()
        if at == self._past.shape[3]:
            self._past = np.concatenate([self._past, np.empty_like(self._past)], 3)
        x = self._table[token] * self._embed.scale
        x += self._places[at]
        if not self._has_mean:
            x -= x.dot(self._share)
        for layer, own, look in zip(self._layers, self._past, self._looks, strict=True):
            x = layer(x, own, at, look)
        return self._close(x)


class _Layer:
    """One block of a decoder."""

    def __init__(self, layer: FusedDecoderLayer):
        own, memory, feed_forward = (
            _FoldedPreNorm(each) if each.is_pre_norm else _PostNorm(each) for each in layer.residuals
        )
        self._heads, self._width = layer.self_attention.heads, layer.self_attention.width
        self._into = own.times(*own.folded(layer.self_attention.qkv_weight, layer.self_attention.qkv_bias))
        self._out = _product(*own.given(layer.self_attention.out, layer.self_attention.out_bias))
        self._feed_forward = _feed_forward(layer.feed_forward, feed_forward)
        self._joins = own.join, memory.join, feed_forward.join
        self.cross, self._times_memory = memory.look(layer.cross), memory.times

    def __call__(self, x: Vector, own: np.ndarray, at: int, look: VectorFunction) -> Vector:
        join_own, join_memory, join_feed_forward = self._joins
        x = join_own(x, self._attend_to_cache(x, own, at))
        x = join_memory(x, look(x))
        return join_feed_forward(x, self._feed_forward(x))

    def _attend_to_cache(self, x: Vector, past: np.ndarray, at: int) -> Vector:
        """`past` has the shape 2 H T K: keys and values."""
        parts = self._into(x).reshape(3, self._heads, self._width)
        past[:, :, at] = parts[1:]
        keys, values = past[:, :, : at + 1]
        return self._out(_attend(parts[0], keys, values))

    def cross_attention(self, memory: SingleMemory | BatchMemory) -> VectorFunction:
        """What one sentence's memory gives to a query."""
        if isinstance(memory, SingleMemory):
            heads, keys = memory.heads, self._times_memory(memory.keys, memory.key_bias)
            values = _product(memory.values, memory.bias)
            return lambda x: values(_softmax(keys(x).reshape(heads, -1)).ravel())
        look, key, value = self.cross, memory.key.numpy()[0], memory.value.numpy()[0]
        query, out = self._times_memory(*look.query), _product(look.out, look.out_bias)
        return lambda x: out(_attend(query(x).reshape(look.heads, look.width), key, value))


class _FoldedPreNorm:
    """A norm that comes before a sublayer, of an x without a mean. Its gain and its bias are folded into the weights
    that come after it, and what is added to x is given without its mean."""

    join: Callable[[Vector, Vector], Vector] = np.add

    def __init__(self, around: Residual):
        self._norm, self._share = around.norm, 1 / len(around.norm.weight)

    def folded(self, weight: Tensor, bias: Tensor) -> MatrixAndBias:
        return _with_norm(self._norm, weight, bias)

    def given(self, weight: Tensor, bias: Tensor) -> MatrixAndBias:
        return weight - weight.mean(0), bias - bias.mean()

    def look(self, look: AttentionWeights) -> AttentionWeights:
        into, bias = (torch.cat(each) for each in zip(self.folded(*look.query), look.key_value, strict=True))
        return AttentionWeights(look.heads, look.width, into, bias, *self.given(look.out, look.out_bias))

    def times(self, weight: Tensor, bias: Tensor) -> VectorFunction:
        weights, added, share, eps = _array(weight), _array(bias), self._share, self._norm.eps

        def product(x: Vector) -> Vector:
            found = weights.dot(x)
            found *= 1 / math.sqrt(x.dot(x) * share + eps)
            found += added
            return found

        return product


class _PostNorm:
    """A norm of the sum of x and what a sublayer gives."""

    def __init__(self, around: Residual):
        self._norm = _Norm(around.norm)

    def join(self, x: Vector, y: Vector) -> Vector:
        return self._norm(x + y)

    def folded(self, weight: Tensor, bias: Tensor) -> MatrixAndBias:
        return weight, bias

    given = folded

    def look(self, look: AttentionWeights) -> AttentionWeights:
        return look

    def times(self, weight: Tensor, bias: Tensor) -> VectorFunction:
        return _product(weight, bias)


class _Norm:
    """A layer norm."""

    def __init__(self, norm: LayerNorm):
        self._weight, self._bias, self._eps = _array(norm.weight), _array(norm.bias), norm.eps
        self._share = 1 / len(self._weight)

    def __call__(self, x: Vector) -> Vector:
        x = x - np.add.reduce(x) * self._share
        return x * (self._weight / math.sqrt(x.dot(x) * self._share + self._eps)) + self._bias


def _unit(eps: float) -> VectorFunction:
    """A norm without gain and bias, of an x without a mean."""
    return lambda x: x * (1 / math.sqrt(x.dot(x) / len(x) + eps))


def _with_norm(norm: LayerNorm, weight: Tensor, bias: Tensor) -> MatrixAndBias:
    """W (gain · x + c) + b = (W gain) x + (W c + b). Of an x without a mean, a row's mean says nothing."""
    gained = weight.detach() * norm.weight.detach()
    return gained - gained.mean(1, keepdim=True), bias.detach() + weight.detach() @ norm.bias.detach()


def _feed_forward(part: FusedFeedForward, around: _FoldedPreNorm | _PostNorm) -> VectorFunction:
    into = around.times(*around.folded(part.up, part.up_bias))
    out = _product(*around.given(part.down, part.down_bias))
    if part.activation is F.relu:
        zeros = np.zeros(len(part.up), np.float32)  # a number would first be made an array
        return lambda x: out(np.maximum(into(x), zeros))
    return lambda x: out(part.activation(torch.from_numpy(into(x))).numpy())


def _attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> Vector:
    """What a query finds, of shapes H K, H T K and H T K, and of all heads in one."""
    weights = _softmax(np.matmul(keys, query[:, :, None])[:, :, 0])
    return np.matmul(weights[:, None], values).ravel()


def _softmax(scores: np.ndarray) -> np.ndarray:
    """To seek the greatest and take it away first would take as long as all of the rest; it is seldom needed."""
    shares = np.exp(scores)
    sums = shares.dot(_ones(scores.shape[1]))
    every = sums.tolist()
    if not (min(every) > 1e-30 and max(every) < 1e30):
        shares = np.exp(scores - scores.max(1, keepdims=True))
        sums = shares.sum(1)
    shares /= sums[:, None]
    return shares


@lru_cache(1024)
def _ones(count: int) -> Vector:
    return np.ones(count, np.float32)


def _product(weight: Tensor, bias: Tensor) -> VectorFunction:
    weights, added = _array(weight), _array(bias)

    def product(x: Vector) -> Vector:
        found = weights.dot(x)
        found += added
        return found

    return product


def _array(weight: Tensor) -> np.ndarray:
    return weight.detach().numpy()
