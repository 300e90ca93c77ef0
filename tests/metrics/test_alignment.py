"""Alignment metrics: small examples, published scores, and general properties."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.links import GradedLinks, Links, parse_all
from saccade.errors import DataError
from saccade.metrics.alignment import score_alignments

some_links = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)


def gold(sure: str, possible: str = "") -> GradedLinks:
    (parsed,) = parse_all([" ".join([sure, possible.replace("-", "p")])], "gold", base=0)
    return parsed


def test_scores_of_a_small_example() -> None:
    # 4 links: 2 of the 3 sure ones, 1 possible, 1 wrong
    scores = score_alignments([frozenset({(0, 0), (1, 1), (2, 2), (3, 0)})], [gold("0-0 1-1 4-4", "2-2")])
    assert scores.precision == pytest.approx(100 * 3 / 4)
    assert scores.recall == pytest.approx(100 * 2 / 3)
    assert scores.f1 == pytest.approx(200 * (3 / 4) * (2 / 3) / (3 / 4 + 2 / 3))
    assert scores.aer == pytest.approx(100 * (1 - (2 + 3) / (4 + 3)))


def test_counts_are_summed_over_all_sentences() -> None:
    one, other = gold("0-0"), gold("0-0 1-1 2-2")
    scores = score_alignments([frozenset(), other.sure], [one, other])
    assert scores.recall == pytest.approx(75)
    assert scores.precision == pytest.approx(100)


@given(sure=some_links.filter(bool), possible=some_links, system=some_links)
def test_scores_are_percentages_and_aer_of_the_sure_links_is_0(sure: Links, possible: Links, system: Links) -> None:
    gold_links = GradedLinks(sure, sure | possible)
    scores = score_alignments([system], [gold_links])
    assert all(-1e-9 <= score <= 100 + 1e-9 for score in (scores.aer, scores.precision, scores.recall, scores.f1))
    assert score_alignments([sure], [gold_links]).aer == pytest.approx(0)


@given(sure=some_links.filter(bool), system=some_links)
def test_aer_is_1_minus_f1_without_possible_links(sure: Links, system: Links) -> None:
    scores = score_alignments([system], [GradedLinks(sure, sure)])
    assert scores.aer == pytest.approx(100 - scores.f1)


def test_gold_without_sure_links_and_unequal_lengths_are_errors() -> None:
    with pytest.raises(DataError, match="no sure link"):
        score_alignments([frozenset()], [gold("", "0-0")])
    with pytest.raises(DataError, match="got links for 2 sentence pairs, but gold links for 1"):
        score_alignments([frozenset()] * 2, [gold("0-0")])


@pytest.mark.skipif("SACCADE_DATA" not in os.environ, reason="SACCADE_DATA does not name the data folder")
@pytest.mark.parametrize(("pair", "published"), [("enfr", 4.07), ("roen", 20.75)])
def test_published_outputs_get_their_published_aer(pair: str, published: float) -> None:
    folder = Path(os.environ["SACCADE_DATA"]) / "align" / "gold"
    system, gold_links = (
        parse_all((folder / f"{pair}.{kind}").read_text("utf-8").splitlines(), kind)
        for kind in ("awesome-align.out", "gold")
    )
    scores = score_alignments([pair.possible for pair in system], gold_links)
    assert round(scores.aer, 2) == published
