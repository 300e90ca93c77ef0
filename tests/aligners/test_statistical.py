"""The statistical aligner: the models equal naive implementations, learn known alignments, and are deterministic."""

import itertools
import random
import tracemalloc
from collections import defaultdict

import numpy as np
import pytest

from saccade.aligners import hmm, statistical
from saccade.aligners.statistical import (
    FERTILITY_PRIOR_USES,
    PRIOR,
    Fertilities,
    WordGrid,
    align_one_way,
    hidden_markov,
    model1,
)

PAIRS = [
    ("the house", "das haus"),
    ("the book", "das buch"),
    ("a book", "ein buch"),
    ("the the house", "haus"),
    ("green", "das grüne haus"),
]
SOURCES, TARGETS = ([pair[side].split() for pair in PAIRS] for side in (0, 1))


def by_pair(grid: WordGrid, posteriors: np.ndarray) -> dict[int, np.ndarray]:
    """The posteriors [T 1+S] of each pair."""
    posteriors_of = {}
    for group in grid.groups:
        posteriors_of |= dict(zip(group.rows.tolist(), posteriors[group.span].reshape(group.shape), strict=True))
    return posteriors_of


# ── comparison with naive implementations ─────────────────────────────────────────────────────────


def naive_model1(iterations: int) -> dict[tuple[int, int, int], float]:
    """(pair, target position, source position or 0) → posterior probability, with counts in dictionaries."""
    cells = [
        (n, t, s, source, target)
        for n, (sources, targets) in enumerate(zip(SOURCES, TARGETS, strict=True))
        for t, target in enumerate(targets)
        for s, source in enumerate(["", *sources])
    ]
    targets_of: dict[str, set[str]] = defaultdict(set)
    for _, _, _, source, target in cells:
        targets_of[source].add(target)
    posteriors = dict.fromkeys((cell[:3] for cell in cells), 0.0)
    for _ in range(iterations):
        new = {}
        for n, t, s, source, target in cells:
            counts = defaultdict(float, dict.fromkeys(targets_of[source], PRIOR))
            for *_, word, other, cell in ((*cell, cell[:3]) for cell in cells):
                if word == source and cell != (n, t, s):
                    counts[other] += posteriors[cell]
            prior = hmm.NULL_PROBABILITY if s == 0 else (1 - hmm.NULL_PROBABILITY) / len(SOURCES[n])
            new[n, t, s] = prior * counts[target] / sum(counts.values())
        sums = defaultdict(float)
        for (n, t, _), probability in new.items():
            sums[n, t] += probability
        posteriors = {cell: probability / sums[cell[:2]] for cell, probability in new.items()}
    return posteriors


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_model_1_equals_a_naive_implementation(iterations: int) -> None:
    grid = WordGrid(SOURCES, TARGETS)
    posteriors = np.zeros(len(grid.entries), np.float32)
    for _ in range(iterations):
        model1(grid, posteriors)
    computed = by_pair(grid, posteriors)
    for (pair, target, source), probability in naive_model1(iterations).items():
        assert computed[pair][target, source] == pytest.approx(probability, rel=1e-3, abs=1e-5), (pair, target, source)


@pytest.mark.parametrize(("length", "words"), [(1, 1), (1, 3), (3, 2), (4, 3)])
def test_forward_backward_equals_the_sum_over_all_alignments(length: int, words: int) -> None:
    translations = np.random.default_rng(7).random((2, length, words + 1)).astype(np.float32)
    transitions = hmm.Jumps.prior().probabilities(words)
    posteriors, jumps = np.zeros((2, length, words + 1)), np.zeros((words + 1, words + 2))
    for b in range(2):
        alignments = [*itertools.product(range(words + 1), repeat=length)]
        weights = [alignment_weight(translations[b], transitions, alignment) for alignment in alignments]
        for alignment, weight in zip(alignments, weights, strict=True):
            share = weight / sum(weights)
            posteriors[b, range(length), alignment] += share
            for jump in itertools.pairwise([0, *(state for state in alignment if state), words + 1]):
                jumps[jump] += share
    computed_posteriors, computed_jumps = hmm.forward_backward(translations, transitions)
    np.testing.assert_allclose(computed_posteriors, posteriors, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(computed_jumps, jumps, rtol=1e-4, atol=1e-6)


def alignment_weight(translations: np.ndarray, transitions: np.ndarray, alignment: tuple[int, ...]) -> float:
    """The probability of one alignment. 0 is the empty word, which does not change the state."""
    weight, state = 1.0, 0
    for target, source in enumerate(alignment):
        weight *= translations[target, source]
        weight *= (1 - hmm.NULL_PROBABILITY) * transitions[state, source] if source else hmm.NULL_PROBABILITY
        state = source or state
    return weight * transitions[state, -1]


def test_jumps_are_summed_by_distance() -> None:
    counts = hmm.counts_by_distance(np.array([[0.0, 1, 0, 0], [0, 2, 4, 8], [0, 16, 0, 32]]))
    assert {int(i) - hmm.MAX_JUMP: counts[i] for i in counts.nonzero()[0]} == {-1: 16, 0: 2, 1: 1 + 4 + 32, 2: 8}
    transitions = hmm.Jumps.from_counts(counts).probabilities(2)
    np.testing.assert_allclose(transitions.sum(1), 1, rtol=1e-6)
    assert not transitions[:, 0].any()  # no transition goes to the start


def test_fertility_factors_of_a_small_example() -> None:
    """Of 10 pairs with one word on each side, 8 are aligned; in the last pair, the source word has fertility 1.25."""
    grid = WordGrid([["a"]] * 11, [["A"]] * 10 + [["A", "A"]])
    posteriors = np.zeros(len(grid.entries), np.float32)
    for row, pair in by_pair(grid, posteriors).items():
        pair[:, 1] = [1.0, 0.25] if row == 10 else float(row < 8)
        pair[:, 0] = 1 - pair[:, 1]
    expected_counts = np.array([2, 8 + 0.75, 0.25, 0, 0, 0, 0])
    of_all = expected_counts + 0.5
    weights = expected_counts + FERTILITY_PRIOR_USES * of_all / of_all.sum()
    first, second = weights[1] / weights[0], weights[2] / weights[1]
    last = next(group for group in grid.groups if group.rows[0] == 10)
    factors = Fertilities(grid, posteriors).factors(last)[0]
    assert factors[:, 0].tolist() == [1, 1]  # the empty word has no fertility
    assert factors[1, 1] == pytest.approx(second)  # the other target word has posterior 1
    assert factors[0, 1] == pytest.approx(first**0.75 * second**0.25)  # the other target word has posterior 0.25


# ── learned alignments ────────────────────────────────────────────────────────────────────────────


def synthetic_pairs(words: int, pairs: int, seed: int = 3) -> tuple[list[list[str]], list[list[str]], list[frozenset]]:
    """Pairs with their links: the target has the second half of the source first, and each word in upper case."""
    generator = random.Random(seed)
    sources, targets, links = [], [], []
    for _ in range(pairs):
        source = [f"w{generator.randrange(words)}" for _ in range(generator.randint(1, 9))]
        order = [*range(len(source) // 2, len(source)), *range(len(source) // 2)]
        sources.append(source)
        targets.append([source[position].upper() for position in order])
        links.append(frozenset((position, t) for t, position in enumerate(order)))
    return sources, targets, links


@pytest.mark.parametrize("fertility", [True, False])
def test_dictionary_with_another_word_order_is_learned(fertility: bool) -> None:
    sources, targets, links = synthetic_pairs(words=60, pairs=400)
    predicted = align_one_way(sources, targets, fertility=fertility)
    correct = sum(len(a & b) for a, b in zip(predicted, links, strict=True))
    assert correct / sum(map(len, links)) > 0.95
    assert correct / sum(map(len, predicted)) > 0.95


def test_twenty_sentences_suffice_for_frequent_words() -> None:
    sources, targets, links = synthetic_pairs(words=5, pairs=20)
    predicted = align_one_way(sources, targets)
    assert sum(len(a & b) for a, b in zip(predicted, links, strict=True)) / sum(map(len, links)) > 0.7


def test_target_word_has_at_most_one_link() -> None:
    for links, source, target in zip(align_one_way(SOURCES, TARGETS), SOURCES, TARGETS, strict=True):
        assert len({t for _, t in links}) == len(links)
        assert all(0 <= s < len(source) and 0 <= t < len(target) for s, t in links)


# ── determinism, edge cases and memory ────────────────────────────────────────────────────────────


def test_alignment_is_deterministic() -> None:
    sources, targets, _ = synthetic_pairs(words=30, pairs=60)
    assert align_one_way(sources, targets) == align_one_way(sources, targets)


def test_empty_sentences_have_no_links_and_do_not_change_others() -> None:
    sources, targets, _ = synthetic_pairs(words=30, pairs=60)
    predicted = align_one_way([[], *sources, ["a"], []], [["a"], *targets, [], []])
    assert predicted == [frozenset(), *align_one_way(sources, targets), frozenset(), frozenset()]
    assert align_one_way([], []) == []
    assert align_one_way([[]], [[]]) == [frozenset()]


def test_long_sentences_do_not_underflow() -> None:
    """With 300 words, the probability of an alignment is far below the smallest float32."""
    sources, targets, _ = synthetic_pairs(words=60, pairs=400)
    long = [f"w{number * 7 % 60}" for number in range(300)]
    predicted = align_one_way([*sources, long], [*targets, [word.upper() for word in long]])[-1]
    assert len(predicted & {(position, position) for position in range(300)}) > 290


def test_forward_backward_is_finite_for_long_sentences() -> None:
    random_words = np.random.default_rng(1).random((1, 300, 301))
    translations = np.where(random_words < 0.9, 1e-9, random_words).astype(np.float32)
    posteriors, jumps = hmm.forward_backward(translations, hmm.Jumps.prior().probabilities(300))
    np.testing.assert_allclose(posteriors.sum(2), 1, rtol=1e-4)
    assert np.isfinite(jumps).all()


def test_group_size_changes_only_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, targets, _ = synthetic_pairs(words=30, pairs=2000)
    links, peak_memory = {}, {}
    for cells in (200_000, 2_000):
        monkeypatch.setattr(statistical, "CELLS_PER_GROUP", cells)
        grid = WordGrid(sources, targets)
        posteriors = np.zeros(len(grid.entries), np.float32)
        model1(grid, posteriors)
        tracemalloc.start()
        hidden_markov(grid, posteriors, hmm.Jumps.prior(), fertility=True)
        peak_memory[cells] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        links[cells] = align_one_way(sources, targets)
    assert links[200_000] == links[2_000]
    assert peak_memory[2_000] < peak_memory[200_000] / 2


def test_progress_is_reported() -> None:
    messages: list[str] = []
    align_one_way(SOURCES, TARGETS, report=messages.append)
    assert messages[0] == "IBM Model 1, iteration 1 of 5"
    assert messages[-1] == "HMM, iteration 5 of 5"
