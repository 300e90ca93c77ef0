"""Words linked by counting: the models against loops over every possibility, and what a user may rely on."""

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
    align,
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


def by_pair(places: WordGrid, origins: np.ndarray) -> dict[int, np.ndarray]:
    """The origins [T 1+S] of each pair."""
    found = {}
    for group in places.groups:
        found |= dict(zip(group.rows.tolist(), origins[group.span].reshape(group.shape), strict=True))
    return found


# ── the models against naive ones ─────────────────────────────────────────────────────────────────


def naive_model1(rounds: int) -> dict[tuple[int, int, int], float]:
    """(pair, target word, source word or 0) → how likely, counted in dictionaries."""
    cells = [
        (n, t, s, source, target)
        for n, (sources, targets) in enumerate(zip(SOURCES, TARGETS, strict=True))
        for t, target in enumerate(targets)
        for s, source in enumerate(["", *sources])
    ]
    becomes: dict[str, set[str]] = defaultdict(set)
    for _, _, _, source, target in cells:
        becomes[source].add(target)
    origins = dict.fromkeys((cell[:3] for cell in cells), 0.0)
    for _ in range(rounds):
        new = {}
        for n, t, s, source, target in cells:
            linked = defaultdict(float, dict.fromkeys(becomes[source], PRIOR))
            for *_, word, other, place in ((*cell, cell[:3]) for cell in cells):
                if word == source and place != (n, t, s):
                    linked[other] += origins[place]
            before = hmm.NULL_PROBABILITY if s == 0 else (1 - hmm.NULL_PROBABILITY) / len(SOURCES[n])
            new[n, t, s] = before * linked[target] / sum(linked.values())
        sums = defaultdict(float)
        for (n, t, _), chance in new.items():
            sums[n, t] += chance
        origins = {place: chance / sums[place[:2]] for place, chance in new.items()}
    return origins


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_model_1_is_what_a_naive_loop_gives(rounds: int) -> None:
    places = WordGrid(SOURCES, TARGETS)
    origins = np.zeros(len(places.entries), np.float32)
    for _ in range(rounds):
        model1(places, origins)
    found = by_pair(places, origins)
    for (pair, target, source), chance in naive_model1(rounds).items():
        assert found[pair][target, source] == pytest.approx(chance, rel=1e-3, abs=1e-5), (pair, target, source)


@pytest.mark.parametrize(("length", "words"), [(1, 1), (1, 3), (3, 2), (4, 3)])
def test_the_hmm_is_the_sum_over_all_alignments(length: int, words: int) -> None:
    translations = np.random.default_rng(7).random((2, length, words + 1)).astype(np.float32)
    chances = hmm.Jumps.prior().probabilities(words)
    posteriors, jumps = np.zeros((2, length, words + 1)), np.zeros((words + 1, words + 2))
    for b in range(2):
        all_of_them = [*itertools.product(range(words + 1), repeat=length)]
        weights = [alignment_weight(translations[b], chances, alignment) for alignment in all_of_them]
        for alignment, weight in zip(all_of_them, weights, strict=True):
            share = weight / sum(weights)
            posteriors[b, range(length), alignment] += share
            for jump in itertools.pairwise([0, *(place for place in alignment if place), words + 1]):
                jumps[jump] += share
    found, made = hmm.forward_backward(translations, chances)
    np.testing.assert_allclose(found, posteriors, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(made, jumps, rtol=1e-4, atol=1e-6)


def alignment_weight(translations: np.ndarray, chances: np.ndarray, alignment: tuple[int, ...]) -> float:
    """Of one alignment: 0 is the empty word, which leaves the place as it was."""
    weight, place = 1.0, 0
    for target, source in enumerate(alignment):
        weight *= translations[target, source]
        weight *= (1 - hmm.NULL_PROBABILITY) * chances[place, source] if source else hmm.NULL_PROBABILITY
        place = source or place
    return weight * chances[place, -1]


def test_jumps_are_counted_by_distance() -> None:
    seen = hmm.counts_by_distance(np.array([[0.0, 1, 0, 0], [0, 2, 4, 8], [0, 16, 0, 32]]))
    assert {int(at) - hmm.MAX_JUMP: seen[at] for at in seen.nonzero()[0]} == {-1: 16, 0: 2, 1: 1 + 4 + 32, 2: 8}
    chances = hmm.Jumps.from_counts(seen).probabilities(2)
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-6)
    assert not chances[:, 0].any()  # nothing jumps to the start


def test_fertilities_by_hand() -> None:
    """Of 10 pairs with one word on each side, 8 are linked; in the last pair, one word and a quarter of a second."""
    places = WordGrid([["a"]] * 11, [["A"]] * 10 + [["A", "A"]])
    origins = np.zeros(len(places.entries), np.float32)
    for row, pair in by_pair(places, origins).items():
        pair[:, 1] = [1.0, 0.25] if row == 10 else float(row < 8)
        pair[:, 0] = 1 - pair[:, 1]
    counted = np.array([2, 8 + 0.75, 0.25, 0, 0, 0, 0])
    of_all = counted + 0.5
    chances = counted + FERTILITY_PRIOR_USES * of_all / of_all.sum()
    first, second = chances[1] / chances[0], chances[2] / chances[1]
    last = next(group for group in places.groups if group.rows[0] == 10)
    found = Fertilities(places, origins).factors(last)[0]
    assert found[:, 0].tolist() == [1, 1]  # the empty word has as many as it likes
    assert found[1, 1] == pytest.approx(second)  # there is 1 beside it
    assert found[0, 1] == pytest.approx(first**0.75 * second**0.25)  # there is a quarter of one beside it


# ── what it learns ────────────────────────────────────────────────────────────────────────────────


def foreign(words: int, pairs: int, seed: int = 3) -> tuple[list[list[str]], list[list[str]], list[frozenset]]:
    """A language that puts the second half of a sentence first and says each word in its own way; with its links."""
    chance = random.Random(seed)
    sources, targets, links = [], [], []
    for _ in range(pairs):
        source = [f"w{chance.randrange(words)}" for _ in range(chance.randint(1, 9))]
        order = [*range(len(source) // 2, len(source)), *range(len(source) // 2)]
        sources.append(source)
        targets.append([source[place].upper() for place in order])
        links.append(frozenset((place, t) for t, place in enumerate(order)))
    return sources, targets, links


@pytest.mark.parametrize("fertility", [True, False])
def test_a_dictionary_with_another_order_is_learned(fertility: bool) -> None:
    sources, targets, links = foreign(words=60, pairs=400)
    found = align(sources, targets, fertility=fertility)
    right = sum(len(a & b) for a, b in zip(found, links, strict=True))
    assert right / sum(map(len, links)) > 0.95
    assert right / sum(map(len, found)) > 0.95


def test_twenty_sentences_are_enough_for_what_recurs() -> None:
    sources, targets, links = foreign(words=5, pairs=20)
    found = align(sources, targets)
    assert sum(len(a & b) for a, b in zip(found, links, strict=True)) / sum(map(len, links)) > 0.7


def test_a_target_word_has_one_link_or_none() -> None:
    for links, source, target in zip(align(SOURCES, TARGETS), SOURCES, TARGETS, strict=True):
        assert len({t for _, t in links}) == len(links)
        assert all(0 <= s < len(source) and 0 <= t < len(target) for s, t in links)


# ── what a user may rely on ───────────────────────────────────────────────────────────────────────


def test_the_same_text_gives_the_same_links() -> None:
    sources, targets, _ = foreign(words=30, pairs=60)
    assert align(sources, targets) == align(sources, targets)


def test_empty_sentences_have_no_links_and_change_nothing() -> None:
    sources, targets, _ = foreign(words=30, pairs=60)
    found = align([[], *sources, ["a"], []], [["a"], *targets, [], []])
    assert found == [frozenset(), *align(sources, targets), frozenset(), frozenset()]
    assert align([], []) == []
    assert align([[]], [[]]) == [frozenset()]


def test_long_sentences_do_not_vanish() -> None:
    """With 300 words the chance of an alignment is far below the smallest number there is."""
    sources, targets, _ = foreign(words=60, pairs=400)
    long = [f"w{number * 7 % 60}" for number in range(300)]
    found = align([*sources, long], [*targets, [word.upper() for word in long]])[-1]
    assert len(found & {(place, place) for place in range(300)}) > 290


def test_the_odds_of_long_sentences_stay_numbers() -> None:
    random_words = np.random.default_rng(1).random((1, 300, 301))
    odds = np.where(random_words < 0.9, 1e-9, random_words).astype(np.float32)
    found, made = hmm.forward_backward(odds, hmm.Jumps.prior().probabilities(300))
    np.testing.assert_allclose(found.sum(2), 1, rtol=1e-4)
    assert np.isfinite(made).all()


def test_chunks_change_nothing_but_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, targets, _ = foreign(words=30, pairs=2000)
    links, most = {}, {}
    for at_once in (200_000, 2_000):
        monkeypatch.setattr(statistical, "CELLS_PER_GROUP", at_once)
        places = WordGrid(sources, targets)
        origins = np.zeros(len(places.entries), np.float32)
        model1(places, origins)
        tracemalloc.start()
        hidden_markov(places, origins, hmm.Jumps.prior(), fertility=True)
        most[at_once] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        links[at_once] = align(sources, targets)
    assert links[200_000] == links[2_000]
    assert most[2_000] < most[200_000] / 2


def test_it_says_how_far_it_is() -> None:
    lines: list[str] = []
    align(SOURCES, TARGETS, report=lines.append)
    assert lines[0] == "IBM Model 1, round 1 of 5"
    assert lines[-1] == "HMM, round 5 of 5"
