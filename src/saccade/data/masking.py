"""Masking of tokens when a batch is made."""

from collections.abc import Sequence

import numpy as np

from saccade.data.batches import Batch, Collate, Draws
from saccade.data.tokenizers import UNKNOWN


class MaskSources:
    """Another collate function, for sources in which `<unk>` replaces each token with the probability `rate` in
    training: word dropout (Bowman et al. 2016, arXiv:1511.06349) on the source side. The model learns not to rely on
    single tokens."""

    def __init__(self, collate: Collate, rate: float):
        self.collate, self.rate = collate, rate
        self.extra_tokens = collate.extra_tokens

    def lengths(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return self.collate.lengths(sources, targets)

    def __call__(
        self, rows: Sequence[int], sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], draws: Draws
    ) -> Batch:
        if draws.training:
            pairs = zip(rows, sources, strict=True)
            sources = [self._masked(source, draws.generator(row, "mask sources")) for row, source in pairs]
        return self.collate(rows, sources, targets, draws)

    def _masked(self, source: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return np.where(generator.random(len(source)) < self.rate, UNKNOWN, source)
