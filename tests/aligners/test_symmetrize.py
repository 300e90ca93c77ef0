"""Symmetrization: small examples, and properties of all rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.aligners.symmetrize import SYMMETRIZE, grow_diag, grow_diag_final, grow_diag_final_and
from saccade.data.links import Links

some_links = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


def links(text: str) -> Links:
    return frozenset((int(s), int(t)) for s, t in (word.split("-") for word in text.split()))


def test_grow_diag_adds_neighbors_of_either_direction() -> None:
    # 1-1 is in both; 1-2 and 2-2 are neighbors of it, and each has a word without a link
    assert grow_diag(links("1-1 1-2"), links("1-1 2-2")) == links("1-1 1-2 2-2")


def test_grow_diag_adds_no_link_between_two_linked_words() -> None:
    assert grow_diag(links("0-0 1-1 0-1"), links("0-0 1-1")) == links("0-0 1-1")


def test_links_without_neighbors_are_added_by_the_final_rules() -> None:
    forward, backward = links("0-0 4-4"), links("0-0 4-6")
    assert grow_diag(forward, backward) == links("0-0")
    assert grow_diag_final(forward, backward) == links("0-0 4-4 4-6")  # target 6 has no link, source 4 has
    assert grow_diag_final_and(forward, backward) == links("0-0 4-4")  # source 4 has a link


def test_grow_diag_continues_from_added_links() -> None:
    assert grow_diag(links("0-0 1-1 2-2 3-3"), links("0-0")) == links("0-0 1-1 2-2 3-3")


@pytest.mark.parametrize("name", SYMMETRIZE)
@given(forward=some_links, backward=some_links)
def test_all_rules_are_between_intersection_and_union(name: str, forward: Links, backward: Links) -> None:
    links = SYMMETRIZE[name](forward, backward)
    assert forward & backward <= links <= forward | backward
    assert SYMMETRIZE[name](forward, forward) == forward


@given(forward=some_links, backward=some_links)
def test_final_rules_include_grow_diag_and_final_covers_all_words(forward: Links, backward: Links) -> None:
    grown, final = grow_diag(forward, backward), grow_diag_final(forward, backward)
    assert grown <= grow_diag_final_and(forward, backward)
    assert grown <= final
    assert {s for s, _ in final} == {s for s, _ in forward | backward}
    assert {t for _, t in final} == {t for _, t in forward | backward}
