"""The step of a lone hypothesis, with NumPy.

One vector goes through a few small matrices, each in microseconds, and torch takes as long to be asked. NumPy is asked
in a fraction of that, and its products of a matrix and a vector are twice as fast. The weights and the state are those
of the lean step, seen as arrays: whatever is not a lone hypothesis goes there. Products that NumPy would share among
threads stay with torch, which keeps to the threads it has been given: those of wide models, and the head's.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.decode.lean import Around, FeedForward, LeanStep, LoneMemory, Look, SharedMemory, StepLayer
from saccade.parts.heads import Linear, Tied
from saccade.parts.norms import LayerNorm
from saccade.places import Fixed, Memory
from saccade.shapes import Float, Int

MOST = 1 << 18  # weights of a product with NumPy; OpenBLAS wakes a second thread for 460,800

Vector = np.ndarray  # of 32-bit floats
Map = Callable[[Vector], Vector]


def can_be_alone(lean: LeanStep) -> bool:
    """Whether NumPy knows this type of weights, the layers are narrow, and the head's weights are to be had."""
    parts = [part for layer in lean.layers for part in (layer.own, layer.feed_forward)]
    weights = [weight for part in parts for weight in (part.into, part.out)]
    known = all(weight.dtype is torch.float32 and weight.is_cpu for weight in (lean.table, *weights))
    return known and all(weight.numel() <= MOST for weight in weights) and type(lean.head) in (Linear, Tied)


class LoneStep:
    """A lean step, and the same in arrays where it is that of a lone hypothesis."""

    def __init__(self, lean: LeanStep):
        self._lean = lean
        self._table, self._scale = _array(lean.table), lean.scale
        self._layers = [_Layer(layer) for layer in lean.layers]
        self._close: Map = _Norm(lean.close) if isinstance(lean.close, LayerNorm) else lambda x: x
        self._log_probs = _log_probs(cast(Linear | Tied, lean.head), lean.table.new_zeros(lean.table.shape[1]))

    def start(self, memory: Memory, rows: int) -> dict[str, Any]:
        state = self._lean.start(memory, rows)
        alone = rows == 1 and not memory.places.padded
        return state | {"looks": Fixed([_look_at(each.value) for each in state["memory"]] if alone else None)}

    def step(self, tokens: Int[Tensor, "B"], state: dict[str, Any]) -> tuple[Float[Tensor, "B V"], dict[str, Any]]:
        looks = state["looks"].value
        if len(tokens) > 1 or looks is None:
            return self._lean.step(tokens, state)
        at, place, past = self._lean.room(state)
        with np.errstate(all="ignore"):  # who searches looks whether all is finite
            x = self._table[int(tokens)] * self._scale + place.numpy()
            for layer, own, look in zip(self._layers, past.numpy()[0], looks, strict=True):
                x = layer(x, own, at, look)
            x = self._close(x)
        return self._log_probs(torch.from_numpy(x))[None], state | {"at": at + 1, "past": past}


class _Layer:
    """One block of a decoder. Norms that come before a product are multiplied into it."""

    def __init__(self, layer: StepLayer):
        around_own, self._around_memory, around_feed_forward = (_Around(around) for around in layer.around)
        self._own, part = layer.own, layer.feed_forward
        self._into, self._out = around_own.times(layer.own.into, layer.own.into_bias), _times_of(layer.own)
        self._feed_forward = _feed_forward(part, around_feed_forward.times(part.into, part.into_bias))
        self._after_own, self._after_feed_forward = around_own.after, around_feed_forward.after

    def __call__(self, x: Vector, own: np.ndarray, at: int, look: Map) -> Vector:
        x = self._after_own(x, self._look_back(x, own, at))
        x = self._around_memory(x, look)
        return self._after_feed_forward(x, self._feed_forward(x))

    def _look_back(self, x: Vector, past: np.ndarray, at: int) -> Vector:
        """`past` has the shape 2 H T K: keys and values."""
        parts = self._into(x).reshape(3, self._own.heads, self._own.width)
        past[:, :, at] = parts[1:]
        keys, values = past[:, :, : at + 1]
        return self._out(_found(parts[0], keys, values))


class _Around:
    """A connection: a sublayer, what it is given and what becomes of what it gives."""

    def __init__(self, around: Around):
        self._norm, self._first = _Norm(around.norm), around.first
        self.after: Callable[[Vector, Vector], Vector] = np.add if self._first else lambda x, y: self._norm(x + y)

    def __call__(self, x: Vector, sublayer: Map) -> Vector:
        return self.after(x, sublayer(self._norm(x) if self._first else x))

    def times(self, weight: Tensor, bias: Tensor) -> Map:
        """The product that a sublayer begins with, of what this lets through to it."""
        return self._norm.times(weight, bias) if self._first else _times(weight, bias)


class _Norm:
    """A layer norm."""

    def __init__(self, norm: LayerNorm):
        self._weight, self._bias, self._eps = _array(norm.weight), _array(norm.bias), norm.eps
        self._share = 1 / len(self._weight)

    def __call__(self, x: Vector) -> Vector:
        x = x - np.add.reduce(x) * self._share
        return x * (self._weight / math.sqrt(x.dot(x) * self._share + self._eps)) + self._bias

    def times(self, weight: Tensor, bias: Tensor) -> Map:
        """W norm(x) + b, where W has the norm's weights in it, and takes the mean out of x by itself."""
        weights = _array(weight) * self._weight
        weights -= weights.mean(1, keepdims=True)
        added, mean = _array(bias) + _array(weight) @ self._bias, np.full_like(self._weight, self._share)

        def product(x: Vector) -> Vector:
            middle = x.dot(mean)
            found = weights.dot(x)
            found *= 1 / math.sqrt(max(0.0, x.dot(x) * self._share - middle * middle) + self._eps)
            found += added
            return found

        return product


def _feed_forward(part: FeedForward, into: Map) -> Map:
    out = _times(part.out, part.out_bias)
    if part.activation is F.relu:
        return lambda x: out(np.maximum(into(x), 0))
    return lambda x: out(part.activation(torch.from_numpy(into(x))).numpy())


def _look_at(memory: LoneMemory | SharedMemory) -> Map:
    """What one sentence's memory gives to a query."""
    if isinstance(memory, LoneMemory):
        keys, values = _times(memory.keys, memory.key_bias), _times(memory.values, memory.bias)
        return lambda x: values(_softmax(keys(x).reshape(memory.heads, -1)).ravel())
    look, key, value = memory.look, memory.key.numpy()[0], memory.value.numpy()[0]
    query, out = _times(look.query, look.query_bias), _times_of(look)
    return lambda x: out(_found(query(x).reshape(look.heads, look.width), key, value))


def _found(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> Vector:
    """What a query finds, of shapes H K, H T K and H T K, and of all heads in one."""
    weights = _softmax(np.matmul(keys, query[:, :, None])[:, :, 0])
    return np.matmul(weights[:, None], values).ravel()


def _softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - np.maximum.reduce(scores, axis=1, keepdims=True))
    shares /= np.add.reduce(shares, axis=1, keepdims=True)
    return shares


def _log_probs(head: Linear | Tied, nothing: Tensor) -> Callable[[Tensor], Tensor]:
    """The head's, with its weights laid in columns: torch goes through them almost twice as fast as through rows."""
    _, weight, bias = head.factors(nothing)
    columns = weight.t().contiguous().t()
    added = weight.new_zeros(len(weight)) if bias is None else bias
    return lambda hidden: torch.addmv(added, columns, head.factors(hidden)[0]).log_softmax(-1)


def _times_of(look: Look) -> Map:
    return _times(look.out, look.out_bias)


def _times(weight: Tensor, bias: Tensor) -> Map:
    weights, added = _array(weight), _array(bias)

    def product(x: Vector) -> Vector:
        found = weights.dot(x)
        found += added
        return found

    return product


def _array(weight: Tensor) -> np.ndarray:
    return weight.detach().numpy()
