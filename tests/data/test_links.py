"""The Pharaoh format: reading, writing, errors, and the base from which words count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.links import GradedLinks, Links, check_range, parse, parse_all, pharaoh, pharaoh_graded
from saccade.errors import DataError

some_links = st.frozensets(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


@given(some_links)
def test_links_round_trip(links: Links) -> None:
    assert parse(pharaoh(links), "f:1") == GradedLinks(links, links)


@given(some_links, some_links)
def test_possible_links_round_trip(one: Links, other: Links) -> None:
    assert parse(pharaoh_graded(gold := GradedLinks(one & other, one | other)), "f:1") == gold


def test_links_are_written_in_ascending_order() -> None:
    assert pharaoh({(10, 0), (2, 1), (2, 0)}) == "2-0 2-1 10-0"


def test_possible_links_are_not_sure() -> None:
    assert parse("1-1 2p3 4?5", "f:1") == GradedLinks(frozenset({(1, 1)}), frozenset({(1, 1), (2, 3), (4, 5)}))


@pytest.mark.parametrize("bad", ["1", "a-b", "1-", "-1-2", "1--2", "1_2", "1-2-3", "9999999-1", "٣-1"])
def test_invalid_link_is_an_error_with_its_location(bad: str) -> None:
    with pytest.raises(DataError, match=r"gold:7: '.*' is not a link"):
        parse(f"0-0 {bad}", "gold:7")


def test_base_is_0_if_any_link_has_a_0() -> None:
    assert parse_all(["1-1", "0-2"], "f")[0].sure == {(1, 1)}


def test_base_is_1_if_many_lines_have_no_0() -> None:
    assert parse_all(["1-1 2p2"] * 20, "f")[3] == GradedLinks(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))


def test_undetectable_base_is_an_error_unless_it_is_given() -> None:
    with pytest.raises(DataError, match="set the base to 0 or 1"):
        parse_all(["1-1"] * 19 + [""] * 50, "f")
    assert parse_all(["1-1"], "f", base=0)[0].sure == {(1, 1)}
    assert parse_all(["1-1"], "f", base=1)[0].sure == {(0, 0)}


def test_file_without_links_needs_no_base() -> None:
    assert parse_all(["", ""], "f") == [GradedLinks(frozenset(), frozenset())] * 2


def test_0_with_base_1_is_an_error() -> None:
    with pytest.raises(DataError, match="f:2: has a 0"):
        parse_all(["1-1", "0-1"], "f", base=1)


def test_link_outside_of_the_sentence_is_an_error() -> None:
    assert check_range(frozenset({(1, 2)}), 2, 3, "f:1") == {(1, 2)}
    with pytest.raises(DataError, match="f:1: the link 1-2 is out of range: the pair has 2 source and 2 target words"):
        check_range(frozenset({(0, 0), (1, 2)}), 2, 2, "f:1")
