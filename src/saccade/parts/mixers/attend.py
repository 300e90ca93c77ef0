"""What all attention modules share: from prepared queries, keys and values to the attention output."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.parts.dropout import Dropout
from saccade.parts.normalizers import Normalizer, masked_scores
from saccade.parts.positions import Position
from saccade.parts.scores import AttentionScore
from saccade.places import Places, attention_mask
from saccade.shapes import Float, Heads, Prepared, Scores

Keys = Float[Tensor, "B H S P"]
Values = Float[Tensor, "B H S K"]


@dataclass(frozen=True)
class KeyValueCache:
    """The keys and values of all positions so far, with their padding mask and positions: the rows of a batch may have
    prompts of unequal length."""

    key: Keys
    value: Values
    places: Places

    def extended(self, key: Keys, value: Values, places: Places) -> "KeyValueCache":
        """The cache with new positions appended. An empty cache is replaced without a copy."""
        if self.key.shape[2] == 0:
            return KeyValueCache(key, value, places)
        keys, values = torch.cat([self.key, key], 2), torch.cat([self.value, value], 2)
        return KeyValueCache(keys, values, self.places.extended(places))


@dataclass(frozen=True)
class MemoryKeys:
    """The keys and values of a memory, computed once per sentence."""

    key: Keys
    value: Values
    places: Places


class AttentionPart(Protocol):
    """What `attend` needs of an attention module."""

    score: AttentionScore
    normalizer: Normalizer
    dropout: Dropout
    position: Position
    causal: bool
    training: bool

    def has_listener(self, kind: str) -> bool: ...
    def note(self, kind: str, value: Tensor, queries: Places) -> None: ...


def attend(part: AttentionPart, query: Prepared, key: Tensor, value: Tensor, queries: Places, keys: Places) -> Heads:
    """normalizer(score(query, key) + bias) @ value + what the position gathers. With a dot-product score and softmax it
    runs on torch's fused kernel, unless the weights are needed: if they are captured, if attention dropout is active,
    or if the position gathers with them."""
    bias = part.position.bias(query, queries, keys)
    uses_dropout = part.training and part.dropout.threshold > 0
    needs_weights = uses_dropout or part.has_listener("weights") or part.position.overrides("gather")
    if part.score.is_dot_product and part.normalizer.is_softmax and not needs_weights:
        return _fused(part, query, key, value, queries, keys, bias)
    scores = part.score.join(query, key)
    scores = scores if bias is None else scores + bias
    weights = part.normalizer(scores, attention_mask(queries, keys, part.causal), queries)
    part.note("weights", weights, queries)
    weights = part.dropout(weights)
    gathered = part.position.gather(weights, queries, keys)
    return weights @ value if gathered is None else weights @ value + gathered


def _fused(
    part: AttentionPart,
    query: Prepared,
    key: Tensor,
    value: Tensor,
    queries: Places,
    keys: Places,
    bias: Scores | None,
) -> Heads:
    # The kernel's own causal mask aligns the first query with the first key, so it is correct only for a whole sequence
    # without padding and without a cache.
    is_causal = part.causal and keys is queries and query.shape[2] > 1 and not keys.padded and bias is None
    mask = None if is_causal else attention_mask(queries, keys, part.causal)
    if bias is not None:
        mask = masked_scores(bias, mask)
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal, scale=1.0)


def check_cross_attention(part: AttentionPart) -> None:
    """Refuse a position encoding inside cross-attention. It tells how far apart two positions of one sequence are, and
    a memory is another sequence."""
    if part.position.is_for_attention:
        raise SaccadeError(
            "cross-attention has no position encoding, because its queries and keys are of different sequences; build "
            "the attention without one"
        )


def cross_attend(part: AttentionPart, query: Prepared, queries: Places, memory: MemoryKeys) -> Heads:
    """Attention to a memory with one row per sentence. The hypotheses of a beam become further queries of their
    sentence's row, so the memory is never copied."""
    sentences, steps = memory.key.shape[0], query.shape[2]
    beam = query.shape[0] // sentences
    if beam == 1:
        return attend(part, query, memory.key, memory.value, queries, memory.places)
    folded = query.unflatten(0, (sentences, beam)).transpose(1, 2).flatten(2, 3)
    heads = attend(part, folded, memory.key, memory.value, queries, memory.places)
    return heads.unflatten(2, (beam, steps)).transpose(1, 2).flatten(0, 1)
