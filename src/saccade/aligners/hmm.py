"""A hidden Markov model of word order (Vogel, Ney & Tillmann 1996; Och & Ney 2003): where in the source the next target
word comes from depends on how far that is from where the last one came from.

The places of a source sentence are its start, 0, and its words, 1 to S. A target word comes from a word, by a jump, or
from the empty word, and then the place stays as it was. After the last target word there is a jump to the end, S + 1.
"""

import numpy as np

MAX_JUMP = 20  # jumps farther than this are as likely as this one
SLOPE = 0.5  # before anything is known, each place more from the next one costs this much
SMOOTHING = 0.5  # of each distance, as if it had been seen
NULL_PROBABILITY = 0.2  # of a target word: that it comes from no source word


class Jumps:
    """How likely jumps are, by their distance."""

    def __init__(self, weights: np.ndarray):
        self._weights = weights

    @classmethod
    def prior(cls) -> "Jumps":
        """The next word is the likeliest, the farther from it the less so."""
        return cls(np.exp(-SLOPE * abs(np.arange(-MAX_JUMP, MAX_JUMP + 1) - 1)))

    @classmethod
    def from_counts(cls, counts: np.ndarray) -> "Jumps":
        """As they were counted."""
        return cls(counts + SMOOTHING)

    def probabilities(self, words: int) -> np.ndarray:
        """[1+S, 2+S]: from the start and each word to each word and to the end. Nothing jumps to the start."""
        weights = self._weights[distances(words)]
        weights[:, 0] = 0
        return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


def distances(words: int) -> np.ndarray:
    """[1+S, 2+S]: which weight of `Jumps` each jump belongs to."""
    places = np.arange(words + 2)
    return np.clip(places - places[:-1, None], -MAX_JUMP, MAX_JUMP) + MAX_JUMP


def counts_by_distance(jumps: np.ndarray) -> np.ndarray:
    """Jumps [1+S, 2+S] by distance."""
    return np.bincount(distances(len(jumps) - 1).ravel(), jumps.ravel(), 2 * MAX_JUMP + 1)


def forward_backward(translations: np.ndarray, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each target word comes from, [B T 1+S], and how often each jump was made, [1+S, 2+S]; both expected.

    `translations` [B T 1+S]: how likely each source word (the empty one first) becomes each target word. All that is
    carried on sums to one at each step, so that no sentence is too long.
    """
    batch, length, places = translations.shape
    step, end = chances[:, :-1], chances[:, -1]
    words, empty = _scaled(translations)
    here = np.zeros((length + 1, batch, places), np.float32)  # the place before each target word, given those before
    here[0, :, 0] = 1
    posteriors = np.empty_like(words)
    for t in range(length):
        posteriors[t] = here[t] @ step * words[t]
        here[t + 1] = posteriors[t] + here[t] * empty[t]
        scale = 1 / here[t + 1].sum(1, keepdims=True)
        for each in (here[t + 1], posteriors[t], words[t], empty[t]):
            each *= scale
    # What is still to come, given the place. (`@` warned at times of values that were not there.)
    ahead = end / (here[-1] * end).sum(1, keepdims=True)
    jumps = np.zeros(chances.shape)
    jumps[:, -1] = (here[-1] * ahead).sum(0)
    for t in reversed(range(length)):
        posteriors[t] *= ahead
        posteriors[t, :, 0] = (here[t] * empty[t] * ahead).sum(1)
        words[t] *= ahead
        ahead = words[t] @ step.T + empty[t] * ahead
    jumps[:, :-1] = step * (here[:-1].reshape(-1, places).T @ words.reshape(-1, places))
    posteriors /= posteriors.sum(2, keepdims=True)
    return posteriors.transpose(1, 0, 2), jumps


def _scaled(translations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Target word by target word what comes from words [T B 1+S] and from the empty word [T B 1], the best of them 1.
    The start makes no word: at its place the empty word stands only in the second."""
    words = np.ascontiguousarray(translations.transpose(1, 0, 2))
    empty = NULL_PROBABILITY * words[:, :, :1]
    words *= 1 - NULL_PROBABILITY
    words[:, :, 0] = 0
    best = np.maximum(words.max(2, keepdims=True), empty)
    return words / best, empty / best
