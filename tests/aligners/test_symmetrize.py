"""Two directions made one: the rules on cases worked out by hand, and what holds for any two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.aligners.symmetrize import SYMMETRIZE, grow_diag, grow_diag_final, grow_diag_final_and
from saccade.data.links import Links

some_links = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


def links(text: str) -> Links:
    return frozenset((int(s), int(t)) for s, t in (word.split("-") for word in text.split()))


def test_a_neighbour_of_either_direction_is_grown_to() -> None:
    # 1-1 is agreed on; 1-2 stands beside it and 2-2 across, and each brings a word that had no link
    assert grow_diag(links("1-1 1-2"), links("1-1 2-2")) == links("1-1 1-2 2-2")


def test_growing_stops_where_both_words_have_links() -> None:
    assert grow_diag(links("0-0 1-1 0-1"), links("0-0 1-1")) == links("0-0 1-1")


def test_what_stands_apart_is_left_to_the_end() -> None:
    forward, backward = links("0-0 4-4"), links("0-0 4-6")
    assert grow_diag(forward, backward) == links("0-0")
    assert grow_diag_final(forward, backward) == links("0-0 4-4 4-6")  # 6 has no link, though 4 has
    assert grow_diag_final_and(forward, backward) == links("0-0 4-4")  # 4 has one already


def test_growth_goes_on_from_what_was_grown() -> None:
    assert grow_diag(links("0-0 1-1 2-2 3-3"), links("0-0")) == links("0-0 1-1 2-2 3-3")


@pytest.mark.parametrize("name", SYMMETRIZE)
@given(forward=some_links, backward=some_links)
def test_every_rule_stays_between_intersection_and_union(name: str, forward: Links, backward: Links) -> None:
    found = SYMMETRIZE[name](forward, backward)
    assert forward & backward <= found <= forward | backward
    assert SYMMETRIZE[name](forward, forward) == forward


@given(forward=some_links, backward=some_links)
def test_the_rules_are_ordered(forward: Links, backward: Links) -> None:
    grown, final = grow_diag(forward, backward), grow_diag_final(forward, backward)
    assert grown <= grow_diag_final_and(forward, backward)
    assert {s for s, _ in final} == {s for s, _ in forward | backward}
    assert {t for _, t in final} == {t for _, t in forward | backward}
