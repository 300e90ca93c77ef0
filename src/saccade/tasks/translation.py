"""Translation: pairs of texts; the loss is the cost of the next token, the measure is BLEU of real decoding."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from saccade.config import Rate
from saccade.data.batches import Batch, Corpus, by_length
from saccade.data.sources.rows import Pair
from saccade.data.tokenizers import Tokenizer
from saccade.decode.engine import DecodeConfig, TorchEngine, in_order
from saccade.errors import RunError
from saccade.measures.translation import bleu, chrf, exact_match
from saccade.models.assemble import Model
from saccade.tasks.losses import Loss, next_token


@dataclass(frozen=True)
class Tokenizers:
    """One for each side; with a joint vocabulary they are the same object."""

    source: Tokenizer
    target: Tokenizer


@dataclass(frozen=True)
class Encoded:
    """Pairs that can be trained on, and how many were left out because a side is empty or too long."""

    corpus: Corpus
    places: tuple[str, ...]  # file:line of each row
    empty: int
    too_long: int


def encode(pairs: Sequence[Pair], tokenizers: Tokenizers, longest: int) -> Encoded:
    """Ids of the pairs with something on both sides and at most `longest` tokens on each."""
    sources = tokenizers.source.encode([pair.source for pair in pairs])
    targets = tokenizers.target.encode([pair.target for pair in pairs])
    empty = [not s or not t for s, t in zip(sources, targets, strict=True)]
    long = [max(len(s), len(t)) > longest for s, t in zip(sources, targets, strict=True)]
    kept = [i for i in range(len(pairs)) if not empty[i] and not long[i]]
    corpus = Corpus([sources[i] for i in kept], [targets[i] for i in kept])
    return Encoded(corpus, tuple(pairs[i].place for i in kept), sum(empty), sum(long))


@dataclass(frozen=True)
class Sample:
    """One of the sentences shown at every validation."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Validation:
    """Figures by name, and the same few samples each time."""

    figures: dict[str, float]
    samples: tuple[Sample, ...]


SAMPLES = 3


class Translation:
    """Raw text in one language → raw text in another."""

    def __init__(self, *, smoothing: Rate = 0.1):
        self.smoothing = smoothing

    def loss(self, model: Model, batch: Batch) -> Loss:
        return next_token(model, batch, self.smoothing)

    def validate(
        self, model: Model, tokenizers: Tokenizers, pairs: Sequence[Pair], longest: int, decode: DecodeConfig
    ) -> Validation:
        """Cost per token without smoothing, and scores of what the model really writes."""
        cost, count = forced_cost(model, encode(pairs, tokenizers, longest).corpus, decode.batch_tokens)
        if not math.isfinite(cost):
            raise RunError("the model's probabilities are not finite; train anew with a lower train.schedule.rate")
        found = TorchEngine(model, tokenizers.source, tokenizers.target).find([p.source for p in pairs], decode)
        texts = [outputs[0].text for outputs in in_order(found)]
        references = [pair.target for pair in pairs]
        figures = {
            "loss": cost / max(1, count),
            "bleu": bleu(texts, references),
            "chrf": chrf(texts, references),
            "exact_match": exact_match(texts, references),
        }
        chosen = range(0, len(pairs), max(1, len(pairs) // SAMPLES))[:SAMPLES]
        return Validation(figures, tuple(Sample(pairs[i].source, references[i], texts[i]) for i in chosen))


@torch.inference_mode()
def forced_cost(
    model: Model, corpus: Corpus, batch_tokens: int, rows: Sequence[int] | None = None
) -> tuple[float, int]:
    """The summed cost of the target tokens of some rows, and their number: perplexity is exp(cost / number)."""
    was_training = model.training
    model.eval()
    batches = by_length(corpus, np.arange(len(corpus)) if rows is None else np.array(rows), batch_tokens)
    try:
        losses = [next_token(model, corpus.batch(batch.tolist()), 0.0) for batch in batches]
    finally:
        model.train(was_training)
    return sum(loss.shown["cost"] for loss in losses), sum(loss.count for loss in losses)
