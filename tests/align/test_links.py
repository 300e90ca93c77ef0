"""The Pharaoh format: what is read, what is refused, and where words count from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.links import Gold, Links, inside, marked, parse, parse_all, pharaoh
from saccade.errors import DataError

some_links = st.frozensets(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


@given(some_links)
def test_what_is_written_is_read_again(links: Links) -> None:
    assert parse(pharaoh(links), "f:1") == Gold(links, links)


@given(some_links, some_links)
def test_what_is_only_possible_is_written_and_read_again(one: Links, other: Links) -> None:
    assert parse(marked(gold := Gold(one & other, one | other)), "f:1") == gold


def test_links_are_written_in_order() -> None:
    assert pharaoh({(10, 0), (2, 1), (2, 0)}) == "2-0 2-1 10-0"


def test_possible_links_are_not_sure() -> None:
    assert parse("1-1 2p3 4?5", "f:1") == Gold(frozenset({(1, 1)}), frozenset({(1, 1), (2, 3), (4, 5)}))


@pytest.mark.parametrize("bad", ["1", "a-b", "1-", "-1-2", "1--2", "1_2", "1-2-3", "9999999-1", "٣-1"])
def test_what_is_no_link_is_named_with_its_place(bad: str) -> None:
    with pytest.raises(DataError, match=r"gold:7: '.*' is not a link"):
        parse(f"0-0 {bad}", "gold:7")


def test_a_zero_shows_that_words_count_from_0() -> None:
    assert parse_all(["1-1", "0-2"], "f")[0].sure == {(1, 1)}


def test_no_zero_in_many_lines_shows_that_words_count_from_1() -> None:
    assert parse_all(["1-1 2p2"] * 20, "f")[3] == Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))


def test_where_the_file_does_not_show_it_one_is_asked() -> None:
    with pytest.raises(DataError, match="say which with a base of 0 or 1"):
        parse_all(["1-1"] * 19 + [""] * 50, "f")
    assert parse_all(["1-1"], "f", base=0)[0].sure == {(1, 1)}
    assert parse_all(["1-1"], "f", base=1)[0].sure == {(0, 0)}


def test_a_file_without_links_needs_no_base() -> None:
    assert parse_all(["", ""], "f") == [Gold(frozenset(), frozenset())] * 2


def test_a_zero_where_words_count_from_1_is_refused() -> None:
    with pytest.raises(DataError, match="f:2: has a 0"):
        parse_all(["1-1", "0-1"], "f", base=1)


def test_links_to_words_that_are_not_there_are_refused() -> None:
    assert inside(frozenset({(1, 2)}), 2, 3, "f:1") == {(1, 2)}
    with pytest.raises(DataError, match="f:1: 1-2 links a word that is not there: there are 2 and 2"):
        inside(frozenset({(0, 0), (1, 2)}), 2, 2, "f:1")
