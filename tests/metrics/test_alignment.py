"""Alignment error rate: a case by hand, the published figures, and what holds always."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.links import Gold, Links, parse_all
from saccade.errors import DataError
from saccade.metrics.alignment import score_alignments

some_links = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)


def gold(sure: str, possible: str = "") -> Gold:
    (found,) = parse_all([" ".join([sure, possible.replace("-", "p")])], "gold", base=0)
    return found


def test_a_case_by_hand() -> None:
    # 4 links: 2 of the 3 sure ones, 1 possible, 1 wrong
    found = score_alignments([frozenset({(0, 0), (1, 1), (2, 2), (3, 0)})], [gold("0-0 1-1 4-4", "2-2")])
    assert found.precision == pytest.approx(100 * 3 / 4)
    assert found.recall == pytest.approx(100 * 2 / 3)
    assert found.f1 == pytest.approx(200 * (3 / 4) * (2 / 3) / (3 / 4 + 2 / 3))
    assert found.aer == pytest.approx(100 * (1 - (2 + 3) / (4 + 3)))


def test_sums_are_over_all_sentences() -> None:
    one, other = gold("0-0"), gold("0-0 1-1 2-2")
    found = score_alignments([frozenset(), other.sure], [one, other])
    assert found.recall == pytest.approx(75)
    assert found.precision == pytest.approx(100)


@given(sure=some_links.filter(bool), possible=some_links, system=some_links)
def test_every_figure_is_a_share(sure: Links, possible: Links, system: Links) -> None:
    wanted = Gold(sure, sure | possible)
    found = score_alignments([system], [wanted])
    assert all(-1e-9 <= figure <= 100 + 1e-9 for figure in (found.aer, found.precision, found.recall, found.f1))
    assert score_alignments([sure], [wanted]).aer == pytest.approx(0)
    if not possible - sure:  # without possible links the error rate is what F1 leaves
        assert found.aer == pytest.approx(100 - found.f1)


def test_nothing_to_score_is_said() -> None:
    with pytest.raises(DataError, match="no sure link"):
        score_alignments([frozenset()], [gold("", "0-0")])
    with pytest.raises(DataError, match="2 lines of links do not go with 1"):
        score_alignments([frozenset()] * 2, [gold("0-0")])


@pytest.mark.skipif("SACCADE_DATA" not in os.environ, reason="SACCADE_DATA does not say where the gold links are")
@pytest.mark.parametrize(("pair", "published"), [("enfr", 4.07), ("roen", 20.75)])
def test_published_outputs_get_their_published_error_rate(pair: str, published: float) -> None:
    folder = Path(os.environ["SACCADE_DATA"]) / "align" / "gold"
    read = [
        parse_all((folder / f"{pair}.{kind}").read_text("utf-8").splitlines(), kind)
        for kind in ("awesome-align.out", "gold")
    ]
    scores = score_alignments([each.possible for each in read[0]], read[1])
    assert round(scores.aer, 2) == published
