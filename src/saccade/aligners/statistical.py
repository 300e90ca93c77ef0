"""Statistical word alignment in one direction: IBM Model 1 (Brown et al. 1993), then an HMM (`hmm.py`) with
fertilities, the number of target words that a source word generates.

What is learned are posteriors: the probability that a target word is linked to each source word of its pair. All other
statistics are expected counts under them. The translation probability at a position excludes the counts of that
position itself (collapsed variational Bayes; Asuncion et al. 2009). In plain EM a rare source word tends to be linked
to many unrelated target words of its pair (garbage collection; Moore 2004); excluding its own counts prevents that. The
sampler of Östling & Tiedemann (2016) gains from the same exclusion.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from saccade.aligners import hmm
from saccade.data.links import Links, transposed

EM_ITERATIONS = 5  # of each model
PRIOR = 0.001  # pseudo-count of each pair of words that co-occurs
CELLS_PER_GROUP = 200_000  # cells that are processed together, unless a single pair has more
MAX_FERTILITY = 6  # higher fertilities count as this one
FERTILITY_PRIOR_USES = 3  # the fertility distribution of all words counts as this many occurrences of each word

Sentences = Sequence[Sequence[str]] | Sequence[Sequence[int]]  # words or ids


def align_one_way(
    sources: Sentences, targets: Sentences, *, fertility: bool = True, report: Callable[[str], None] | None = None
) -> list[Links]:
    """Align sentence pairs in one direction: each target word gets one link or none. A pair with an empty side has no
    links. Without `fertility`, this is the plain HMM. `report` receives progress messages."""
    grid = WordGrid(sources, targets)
    report = report or (lambda message: None)
    posteriors = np.zeros(len(grid.entries), np.float32)
    for iteration in range(1, EM_ITERATIONS + 1):
        report(f"IBM Model 1, iteration {iteration} of {EM_ITERATIONS}")
        model1(grid, posteriors)
    jumps = hmm.Jumps.prior()
    for iteration in range(1, EM_ITERATIONS + 1):
        report(f"HMM, iteration {iteration} of {EM_ITERATIONS}")
        # Model 1 divides target words among repeated source words: their fertilities need one HMM iteration first
        jumps = hidden_markov(grid, posteriors, jumps, fertility and iteration > 1)
    return _best_links(grid, posteriors, len(sources))


def align_both_ways(sources: Sentences, targets: Sentences, report: Callable[[str], None]) -> list[tuple[Links, Links]]:
    """Align in both directions: the forward and the backward links of each pair, both as (source, target)."""
    forward = align_one_way(sources, targets, report=lambda message: report(f"forward: {message}"))
    backward = align_one_way(targets, sources, report=lambda message: report(f"backward: {message}"))
    return [(links, transposed(reverse)) for links, reverse in zip(forward, backward, strict=True)]


# ── the data layout ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Group:
    """B pairs with the same source length S and target length T, so that no padding is needed."""

    rows: np.ndarray  # [B], the numbers of the pairs
    sources: np.ndarray  # [B 1+S], source word ids; the empty word, 0, comes first
    shape: tuple[int, int, int]  # B T 1+S
    span: slice  # of the flat arrays


class WordGrid:
    """The cells (target word, source word) of all pairs, in flat arrays. `entries` has the lexicon entry of each cell:
    the index of its pair of word types."""

    def __init__(self, sources: Sentences, targets: Sentences):
        source, source_lengths, self.source_words = _word_ids(sources)
        target, target_lengths, target_words = _word_ids(targets)
        shapes = np.stack([target_lengths, source_lengths + 1], 1)
        self.groups: list[Group] = []
        self.entries = np.empty(int(shapes[source_lengths > 0].prod(1).sum()), np.int32)
        keys_of_groups, first = [], 0
        for rows in _rows_of_equal_shape(shapes):
            empty = np.zeros((len(rows), 1), np.int64)
            words = np.concatenate([empty, _stack(source, source_lengths, rows)], 1)
            keys = words[:, None] * target_words + _stack(target, target_lengths, rows)[:, :, None]
            span = slice(first, first := first + keys.size)
            self.groups.append(Group(rows, words, keys.shape, span))
            distinct, index = np.unique(keys, return_inverse=True)
            self.entries[span] = index.ravel()
            keys_of_groups.append(distinct)
        lexicon = np.unique(np.concatenate(keys_of_groups)) if keys_of_groups else np.zeros(0, np.int64)
        for group, distinct in zip(self.groups, keys_of_groups, strict=True):
            self.entries[group.span] = np.searchsorted(lexicon, distinct)[self.entries[group.span]]
        self.source_of = lexicon // target_words  # the source word of each entry


def _word_ids(sentences: Sentences) -> tuple[np.ndarray, np.ndarray, int]:
    """All words as ids from 1 in one flat array, the length of each sentence, and the number of ids, 0 included."""
    ids: dict[str | int, int] = {}
    words = (ids.setdefault(word, len(ids) + 1) for sentence in sentences for word in sentence)
    flat = np.fromiter(words, np.int64)
    return flat, np.fromiter(map(len, sentences), np.int64), len(ids) + 1


def _rows_of_equal_shape(shapes: np.ndarray) -> Iterator[np.ndarray]:
    """Groups of rows with the same shape [T 1+S], limited by CELLS_PER_GROUP; rows with an empty side are left out."""
    order = np.lexsort(shapes.T)
    order = order[(shapes[order, 0] > 0) & (shapes[order, 1] > 1)]
    boundaries = np.flatnonzero(np.diff(shapes[order], axis=0).any(1)) + 1
    for rows in np.split(order, boundaries) if len(order) else []:
        group_size = max(1, CELLS_PER_GROUP // int(shapes[rows[0]].prod()))
        yield from (rows[first : first + group_size] for first in range(0, len(rows), group_size))


def _stack(flat: np.ndarray, lengths: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sentences of the same length as a matrix [B length]."""
    starts = np.cumsum(lengths)[rows] - lengths[rows]
    return flat[starts[:, None] + np.arange(int(lengths[rows[0]]))]


def _best_links(grid: WordGrid, posteriors: np.ndarray, pairs: int) -> list[Links]:
    """Link each target word to its most probable source word, unless that is the empty word."""
    links: list[Links] = [frozenset()] * pairs
    for group in grid.groups:
        best = posteriors[group.span].reshape(group.shape).argmax(2) - 1
        for row, best_sources in zip(group.rows.tolist(), best.tolist(), strict=True):
            links[row] = frozenset((source, target) for target, source in enumerate(best_sources) if source >= 0)
    return links


# ── the models: each iteration updates the posteriors in place ────────────────────────────────────


def model1(grid: WordGrid, posteriors: np.ndarray) -> None:
    """One iteration of IBM Model 1: all source words of a sentence have the same prior probability."""
    lexicon = Lexicon(grid, posteriors)
    for group in grid.groups:
        probabilities = lexicon.translations(group)
        probabilities[:, :, 0] *= hmm.NULL_PROBABILITY
        probabilities[:, :, 1:] *= (1 - hmm.NULL_PROBABILITY) / (group.shape[2] - 1)
        probabilities /= probabilities.sum(2, keepdims=True)
        posteriors[group.span] = probabilities.ravel()


def hidden_markov(grid: WordGrid, posteriors: np.ndarray, jumps: hmm.Jumps, fertility: bool) -> hmm.Jumps:
    """One iteration of the HMM, with or without fertilities. Returns the jump distribution for the next one."""
    lexicon = Lexicon(grid, posteriors)
    fertilities = Fertilities(grid, posteriors) if fertility else None
    counts = np.zeros(2 * hmm.MAX_JUMP + 1)
    for group in grid.groups:
        translations = lexicon.translations(group)
        if fertilities:
            translations *= fertilities.factors(group)
        updated, transitions = hmm.forward_backward(translations, jumps.probabilities(group.shape[2] - 1))
        posteriors[group.span] = updated.ravel()
        counts += hmm.counts_by_distance(transitions)
    return hmm.Jumps.from_counts(counts)


class Lexicon:
    """Translation probabilities, from expected counts of word pairs."""

    def __init__(self, grid: WordGrid, posteriors: np.ndarray):
        self._grid, self._posteriors = grid, posteriors
        self._counts = np.full(len(grid.source_of), PRIOR)
        for first in range(0, len(posteriors), 10 * CELLS_PER_GROUP):
            span = slice(first, first + 10 * CELLS_PER_GROUP)
            self._counts += np.bincount(grid.entries[span], posteriors[span], len(self._counts))
        self._totals = np.bincount(grid.source_of, self._counts, grid.source_words)

    def translations(self, group: Group) -> np.ndarray:
        """p(target word | source word) [B T 1+S], estimated without the counts of the cell itself."""
        own = self._posteriors[group.span].reshape(group.shape)
        counts = self._counts[self._grid.entries[group.span]].reshape(group.shape) - own
        totals = self._totals[group.sources][:, None] - own
        return (np.maximum(counts, PRIOR) / np.maximum(totals, PRIOR)).astype(np.float32)


class Fertilities:
    """The distribution of the number of target words of each source word. Expected fertilities are fractional: each
    counts for the two integers around it, in proportion to its nearness."""

    def __init__(self, grid: WordGrid, posteriors: np.ndarray):
        self._posteriors = posteriors
        words = np.concatenate([np.zeros(0, np.int64), *(group.sources.ravel() for group in grid.groups)])
        expected = np.concatenate([np.zeros(0), *(self._expected(group).ravel() for group in grid.groups)])
        low, fraction = _floor_and_fraction(expected, MAX_FERTILITY)
        size = grid.source_words * (MAX_FERTILITY + 1)
        index = words * (MAX_FERTILITY + 1) + low
        counts = np.bincount(index, 1 - fraction, size) + np.bincount(index + 1, fraction, size)
        counts = counts.astype(np.float64).reshape(-1, MAX_FERTILITY + 1)  # bincount of an empty array gives integers
        of_all = counts[1:].sum(0) + 0.5
        counts += FERTILITY_PRIOR_USES * of_all / of_all.sum()
        self._steps = np.diff(np.log(counts), axis=1).astype(np.float32)  # log p(n + 1) - log p(n)
        self._steps[0] = 0  # the empty word has no fertility

    def _expected(self, group: Group) -> np.ndarray:
        return self._posteriors[group.span].reshape(group.shape).sum(1)

    def factors(self, group: Group) -> np.ndarray:
        """p(n + 1) / p(n) [B T 1+S], where n is the expected fertility of the source word without this target word."""
        others = self._expected(group)[:, None] - self._posteriors[group.span].reshape(group.shape)
        low, fraction = _floor_and_fraction(others, MAX_FERTILITY - 1)
        words = group.sources[:, None]
        below, above = self._steps[words, low], self._steps[words, low + 1]
        return np.exp(below + fraction * (above - below))


def _floor_and_fraction(values: np.ndarray, maximum: int) -> tuple[np.ndarray, np.ndarray]:
    """Clip to [0, maximum], and split into an integer below `maximum` and the rest (up to 1)."""
    values = np.clip(values, 0, maximum)
    low = np.minimum(values.astype(np.int64), maximum - 1)
    return low, values - low
