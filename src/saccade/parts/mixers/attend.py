"""Looking: what every attention does with its queries, keys and values, whatever it made them of."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.parts.dropout import Dropout
from saccade.parts.normalizers import Normalizer
from saccade.parts.scores import Score
from saccade.places import Places, attention_mask
from saccade.shapes import Float, Heads, Prepared

Keys = Float[Tensor, "B H S P"]
Values = Float[Tensor, "B H S K"]


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values so far. It grows with us, so it needs no places."""

    key: Keys
    value: Values

    def extended(self, key: Keys, value: Values) -> "KeyValueCache":
        """With what has just come; the first to come is all there is, and is not copied."""
        if self.key.shape[2] == 0:
            return KeyValueCache(key, value)
        return KeyValueCache(torch.cat([self.key, key], 2), torch.cat([self.value, value], 2))


@dataclass(frozen=True)
class MemoryKeys:
    """Keys and values of a memory, prepared once."""

    key: Keys
    value: Values
    places: Places


class AttentionPart(Protocol):
    """What looking needs of an attention."""

    score: Score
    normalizer: Normalizer
    dropout: Dropout
    causal: bool
    training: bool

    def has_listener(self, kind: str) -> bool: ...
    def note(self, kind: str, value: Tensor, queries: Places) -> None: ...


def attend(part: AttentionPart, query: Prepared, key: Tensor, value: Tensor, queries: Places, keys: Places) -> Heads:
    """normalizer(score(query, key)) · value. A dot score with softmax runs on torch's fused kernel, unless weights are
    captured or attention dropout is drawn: then the same sum is computed explicitly."""
    drops = part.training and part.dropout.threshold > 0
    if part.score.dot and part.normalizer.is_softmax and not drops and not part.has_listener("weights"):
        return _fused(part, query, key, value, queries, keys)
    weights = part.normalizer(part.score.join(query, key), attention_mask(queries, keys, part.causal), queries)
    part.note("weights", weights, queries)
    return part.dropout(weights) @ value


def _fused(part: AttentionPart, query: Prepared, key: Tensor, value: Tensor, queries: Places, keys: Places) -> Heads:
    # the kernel's own causal mask is aligned top-left: right for a whole pass only, and there it also
    # keeps right padding out of every real row
    whole = part.causal and keys is queries and query.shape[2] > 1
    keep = None if whole else attention_mask(queries, keys, part.causal)
    return F.scaled_dot_product_attention(query, key, value, keep, is_causal=whole, scale=1.0)


def cross_attend(part: AttentionPart, query: Prepared, queries: Places, memory: MemoryKeys) -> Heads:
    """The hypotheses of a sentence are more queries of its one row: a memory is never copied for a beam."""
    sentences, steps = memory.key.shape[0], query.shape[2]
    beam = query.shape[0] // sentences
    if beam == 1:
        return attend(part, query, memory.key, memory.value, queries, memory.places)
    folded = query.unflatten(0, (sentences, beam)).transpose(1, 2).flatten(2, 3)
    found = attend(part, folded, memory.key, memory.value, queries, memory.places)
    return found.unflatten(2, (beam, steps)).transpose(1, 2).flatten(0, 1)
