"""Prediction for sequences of any length: long ones are split into overlapping windows. Each prediction comes from the
window in which its position is farthest from an edge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from saccade.data.batches import COLLATE_LABELS, Corpus, by_length
from saccade.devices import device_of
from saccade.errors import NON_FINITE_OUTPUT, RunError
from saccade.models.assemble import Model
from saccade.places import Memory


@dataclass(frozen=True)
class Window:
    """The model's input is the positions from `first` to `end` (exclusive); its predictions from `keep_from` to
    `keep_to` (exclusive) are kept."""

    first: int
    end: int
    keep_from: int
    keep_to: int


def windows(length: int, size: int) -> list[Window]:
    """Windows of `size` positions that overlap by half and whose kept ranges cover the sequence once."""
    if length <= size:
        return [Window(0, length, 0, length)] if length else []
    firsts = [*range(0, length - size, size - size // 2), length - size]
    boundaries = [0, *((left + right + size + 1) // 2 for left, right in pairwise(firsts)), length]
    return [Window(first, first + size, *kept) for first, kept in zip(firsts, pairwise(boundaries), strict=True)]


@dataclass(frozen=True)
class WindowOutput:
    """A window of a sequence and the model's output for it."""

    window: Window
    output: np.ndarray


@torch.inference_mode()
def predict_windows(
    model: Model,
    sequences: Sequence[np.ndarray],
    longest: int,
    batch_tokens: int,
    states: Callable[[Memory], Tensor],
    output_of: Callable[[Tensor], Tensor],
) -> list[list[WindowOutput]]:
    """For each sequence its windows, each with output_of(log-probabilities). `states` selects the part of the
    encoder's output that the head is applied to."""
    numbered = [(row, window) for row, values in enumerate(sequences) for window in windows(len(values), longest)]
    inputs = [sequences[row][window.first : window.end] for row, window in numbered]
    corpus = Corpus(inputs, [[]] * len(numbered), COLLATE_LABELS)
    outputs: dict[int, np.ndarray] = {}
    was_training, device = model.training, device_of(model)
    model.eval()
    try:
        for batch in by_length(corpus, np.arange(len(numbered)), batch_tokens):
            source = corpus.batch(batch.tolist()).source
            assert source is not None
            source = source.to(device)
            log_probs = model.head.log_probs(states(model.encode(source.values, source.keep)))
            results = output_of(log_probs).cpu()
            if bool(log_probs.isnan().any()):
                raise RunError(NON_FINITE_OUTPUT)
            outputs |= {int(i): output for i, output in zip(batch, results.numpy(), strict=True)}
    finally:
        model.train(was_training)
    by_sequence: list[list[WindowOutput]] = [[] for _ in sequences]
    for i, (row, window) in enumerate(numbered):
        by_sequence[row].append(WindowOutput(window, outputs[i]))
    return by_sequence
