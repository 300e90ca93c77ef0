"""Cross-attention of fused decoding: to the memory of a batch, and to that of a single sentence, whose memory is
multiplied into the weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.parts.fast_linear import linear
from saccade.parts.mixers.projections import AttentionProjections
from saccade.shapes import Float

Rows = Float[Tensor, "B D"]  # the vector of one position for each hypothesis


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
