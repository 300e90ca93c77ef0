"""Words linked by counting which occur together, one direction at a time: first IBM Model 1 (Brown et al. 1993), then
an HMM (`hmm.py`) with fertilities, which say how many target words a source word becomes.

What is learned is where each target word comes from, its origins; everything else is counted from them. How likely a
source word becomes a target word is judged by how often the two were linked *elsewhere*: what a place itself has said
does not count for it (collapsed variational Bayes; Asuncion et al. 2009). So a rare word cannot explain whatever stands
opposite to it, the known weakness of plain EM. The sampler of Östling & Tiedemann (2016) owes its strength to the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from saccade.aligners import hmm
from saccade.data.links import Links, transposed

EM_ROUNDS = 5  # of each model
PRIOR = 0.001  # of each pair of words that occurs, as if it had been linked that often
CELLS_PER_GROUP = 200_000  # places that are worked on together, unless one pair has more
MAX_FERTILITY = 6  # target words of a source word; more are as many
FERTILITY_PRIOR_USES = 3  # the fertility of all words counts as this many uses of each

Sentences = Sequence[Sequence[str]] | Sequence[Sequence[int]]  # words, or numbers that stand for them


def align(
    sources: Sentences, targets: Sentences, *, fertility: bool = True, report: Callable[[str], None] | None = None
) -> list[Links]:
    """The links of each pair. Every target word has one link or none; a pair with an empty side has none at all.
    Without `fertility` it is the plain HMM."""
    places = WordGrid(sources, targets)
    say = report or (lambda line: None)
    origins = np.zeros(len(places.entries), np.float32)
    for number in range(1, EM_ROUNDS + 1):
        say(f"IBM Model 1, round {number} of {EM_ROUNDS}")
        model1(places, origins)
    jumps = hmm.Jumps.prior()
    for number in range(1, EM_ROUNDS + 1):
        say(f"HMM, round {number} of {EM_ROUNDS}")
        # equal words of a sentence share their target words until order parts them: only then may they have too many
        jumps = hidden_markov(places, origins, jumps, fertility and number > 1)
    return _links(places, origins, len(sources))


def align_both_ways(sources: Sentences, targets: Sentences, report: Callable[[str], None]) -> list[tuple[Links, Links]]:
    """The links of each pair, learned forward and backward."""
    forward = align(sources, targets, report=lambda line: report(f"forward: {line}"))
    backward = align(targets, sources, report=lambda line: report(f"backward: {line}"))
    return [(one, transposed(other)) for one, other in zip(forward, backward, strict=True)]


# ── where the places are ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Group:
    """B pairs of the same two lengths: no padding anywhere."""

    rows: np.ndarray  # [B], which pairs they are
    sources: np.ndarray  # [B 1+S], the numbers of their source words; the empty word, 0, comes first
    shape: tuple[int, int, int]  # B T 1+S
    span: slice  # of the flat arrays


class WordGrid:
    """Every target word beside every source word of its pair, all in flat arrays. Each is an entry of the lexicon."""

    def __init__(self, sources: Sentences, targets: Sentences):
        source, source_lengths, self.source_words = _numbered(sources)
        target, target_lengths, target_words = _numbered(targets)
        shapes = np.stack([target_lengths, source_lengths + 1], 1)
        self.groups: list[Group] = []
        self.entries = np.empty(int(shapes[source_lengths > 0].prod(1).sum()), np.int32)
        found, first = [], 0
        for rows in _of_equal_shape(shapes):
            empty = np.zeros((len(rows), 1), np.int64)
            words = np.concatenate([empty, _cut(source, source_lengths, rows)], 1)
            both = words[:, None] * target_words + _cut(target, target_lengths, rows)[:, :, None]
            span = slice(first, first := first + both.size)
            self.groups.append(Group(rows, words, both.shape, span))
            distinct, which = np.unique(both, return_inverse=True)
            self.entries[span] = which.ravel()
            found.append(distinct)
        lexicon = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)
        for group, distinct in zip(self.groups, found, strict=True):
            self.entries[group.span] = np.searchsorted(lexicon, distinct)[self.entries[group.span]]
        self.source_of = lexicon // target_words  # the source word of each entry


def _numbered(sentences: Sentences) -> tuple[np.ndarray, np.ndarray, int]:
    """All words as numbers from 1 in one flat array, the length of each sentence, and the first number not in use."""
    numbers: dict[str | int, int] = {}
    words = (numbers.setdefault(word, len(numbers) + 1) for sentence in sentences for word in sentence)
    flat = np.fromiter(words, np.int64)
    return flat, np.fromiter(map(len, sentences), np.int64), len(numbers) + 1


def _of_equal_shape(shapes: np.ndarray) -> Iterator[np.ndarray]:
    """Rows of the same shape [T 1+S], as many as are worked on together; none with an empty side."""
    order = np.lexsort(shapes.T)
    order = order[(shapes[order, 0] > 0) & (shapes[order, 1] > 1)]
    borders = np.flatnonzero(np.diff(shapes[order], axis=0).any(1)) + 1
    for rows in np.split(order, borders) if len(order) else []:
        at_once = max(1, CELLS_PER_GROUP // int(shapes[rows[0]].prod()))
        yield from (rows[first : first + at_once] for first in range(0, len(rows), at_once))


def _cut(flat: np.ndarray, lengths: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sentences of one length, side by side."""
    starts = np.cumsum(lengths)[rows] - lengths[rows]
    return flat[starts[:, None] + np.arange(int(lengths[rows[0]]))]


def _links(places: WordGrid, origins: np.ndarray, pairs: int) -> list[Links]:
    links: list[Links] = [frozenset()] * pairs
    for group in places.groups:
        best = origins[group.span].reshape(group.shape).argmax(2) - 1
        for row, found in zip(group.rows.tolist(), best.tolist(), strict=True):
            links[row] = frozenset((source, target) for target, source in enumerate(found) if source >= 0)
    return links


# ── the models: a round makes new origins of those of the round before ────────────────────────────


def model1(places: WordGrid, origins: np.ndarray) -> None:
    """Every source word of the sentence is as likely as every other."""
    lexicon = Lexicon(places, origins)
    for group in places.groups:
        chances = lexicon.translations(group)
        chances[:, :, 0] *= hmm.NULL_PROBABILITY
        chances[:, :, 1:] *= (1 - hmm.NULL_PROBABILITY) / (group.shape[2] - 1)
        chances /= chances.sum(2, keepdims=True)
        origins[group.span] = chances.ravel()


def hidden_markov(places: WordGrid, origins: np.ndarray, jumps: hmm.Jumps, fertility: bool) -> hmm.Jumps:
    """Source words are likely by their distance from the last one, and by how many target words they have already. The
    jumps are those of the next round."""
    lexicon = Lexicon(places, origins)
    fertilities = Fertilities(places, origins) if fertility else None
    counts = np.zeros(2 * hmm.MAX_JUMP + 1)
    for group in places.groups:
        chances = lexicon.translations(group)
        if fertilities:
            chances *= fertilities.factors(group)
        found, made = hmm.forward_backward(chances, jumps.probabilities(group.shape[2] - 1))
        origins[group.span] = found.ravel()
        counts += hmm.counts_by_distance(made)
    return hmm.Jumps.from_counts(counts)


class Lexicon:
    """How often each source word became each target word."""

    def __init__(self, places: WordGrid, origins: np.ndarray):
        self._places, self._origins = places, origins
        self._counts = np.full(len(places.source_of), PRIOR)
        for first in range(0, len(origins), 10 * CELLS_PER_GROUP):
            span = slice(first, first + 10 * CELLS_PER_GROUP)
            self._counts += np.bincount(places.entries[span], origins[span], len(self._counts))
        self._totals = np.bincount(places.source_of, self._counts, places.source_words)

    def translations(self, group: Group) -> np.ndarray:
        """[B T 1+S]: how likely each source word becomes each target word, by all that is known from elsewhere."""
        own = self._origins[group.span].reshape(group.shape)
        counts = self._counts[self._places.entries[group.span]].reshape(group.shape) - own
        totals = self._totals[group.sources][:, None] - own
        return (np.maximum(counts, PRIOR) / np.maximum(totals, PRIOR)).astype(np.float32)


class Fertilities:
    """How many target words each source word becomes. What is expected is seldom a whole number: it counts for the two
    around it, by how near they are."""

    def __init__(self, places: WordGrid, origins: np.ndarray):
        self._origins = origins
        words = np.concatenate([np.zeros(0, np.int64), *(group.sources.ravel() for group in places.groups)])
        expected = np.concatenate([np.zeros(0), *(self._expected(group).ravel() for group in places.groups)])
        low, part = _around(expected, MAX_FERTILITY)
        size = places.source_words * (MAX_FERTILITY + 1)
        at = words * (MAX_FERTILITY + 1) + low
        counts = np.bincount(at, 1 - part, size) + np.bincount(at + 1, part, size)
        counts = counts.astype(np.float64).reshape(-1, MAX_FERTILITY + 1)  # whole numbers, if there are no words
        of_all = counts[1:].sum(0) + 0.5
        counts += FERTILITY_PRIOR_USES * of_all / of_all.sum()
        self._steps = np.diff(np.log(counts), axis=1).astype(np.float32)  # what one more target word is worth
        self._steps[0] = 0  # to the empty word, nothing

    def _expected(self, group: Group) -> np.ndarray:
        return self._origins[group.span].reshape(group.shape).sum(1)

    def factors(self, group: Group) -> np.ndarray:
        """[B T 1+S]: how much likelier it gets that a source word has this target word beside those it has already."""
        others = self._expected(group)[:, None] - self._origins[group.span].reshape(group.shape)
        low, part = _around(others, MAX_FERTILITY - 1)
        words = group.sources[:, None]
        below, above = self._steps[words, low], self._steps[words, low + 1]
        return np.exp(below + part * (above - below))


def _around(numbers: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The whole number below each, and how far it is from there to the next one; from 0 to `most`."""
    numbers = np.clip(numbers, 0, most)
    low = np.minimum(numbers.astype(np.int64), most - 1)
    return low, numbers - low
