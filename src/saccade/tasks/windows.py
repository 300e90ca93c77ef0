"""Reading sequences of any length: long ones in overlapping windows, each place believed where it stands deepest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from saccade.data.batches import COLLATE_LABELS, Corpus, by_length
from saccade.errors import RunError
from saccade.models.assemble import Model
from saccade.places import Memory


@dataclass(frozen=True)
class Window:
    """Places `first` up to `end` are read together; `since` up to `until` are taken from it."""

    first: int
    end: int
    keep_from: int
    keep_to: int


def windows(length: int, size: int) -> list[Window]:
    """Windows that overlap by half. Of those that hold a place, the one is taken whose edges are farthest from it."""
    if length <= size:
        return [Window(0, length, 0, length)] if length else []
    firsts = [*range(0, length - size, size - size // 2), length - size]
    cuts = [0, *((one + other + size + 1) // 2 for one, other in pairwise(firsts)), length]
    return [Window(first, first + size, *between) for first, between in zip(firsts, pairwise(cuts), strict=True)]


@dataclass(frozen=True)
class WindowOutput:
    """A window of a sequence and what the model says of it."""

    window: Window
    output: np.ndarray


@torch.inference_mode()
def read_windows(
    model: Model,
    sequences: Sequence[np.ndarray],
    longest: int,
    batch_tokens: int,
    states: Callable[[Memory], Tensor],
    said_of: Callable[[Tensor], Tensor],
) -> list[list[WindowOutput]]:
    """For each sequence its windows, and what follows from the log-probabilities of the states of each."""
    cut = [(row, window) for row, values in enumerate(sequences) for window in windows(len(values), longest)]
    pieces = [sequences[row][window.first : window.end] for row, window in cut]
    corpus = Corpus(pieces, [[]] * len(cut), COLLATE_LABELS)
    said: dict[int, np.ndarray] = {}
    was_training = model.training
    model.eval()
    try:
        for batch in by_length(corpus, np.arange(len(cut)), batch_tokens):
            source = corpus.batch(batch.tolist()).source
            log_probs = model.head.log_probs(states(model.encoder.encode(source.values, source.keep)))
            if bool(log_probs.isnan().any()):
                raise RunError("the model's probabilities are not finite; its weights are of no use")
            said |= {int(piece): each for piece, each in zip(batch, said_of(log_probs).numpy(), strict=True)}
    finally:
        model.train(was_training)
    found: list[list[WindowOutput]] = [[] for _ in sequences]
    for piece, (row, window) in enumerate(cut):
        found[row].append(WindowOutput(window, said[piece]))
    return found
