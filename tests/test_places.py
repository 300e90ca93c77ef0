"""Places keep all their fields: where they are cut, extended or repeated, no field is lost."""

from dataclasses import fields, replace

import torch

from contracts.checks.common import padding_mask, progress
from contracts.variants import B, D, T
from saccade.parts import Unprojected
from saccade.places import Memory, Places

GRID = (2, 4)
LINKS = torch.arange(B * 64).view(B, 8, 8)


def places(length: int, first: int = 0) -> Places:
    of_text = Places.of(torch.zeros(B, length), padding_mask((T, 4, 1))[:, :length], progress(first))
    return replace(of_text, grid=GRID, links=LINKS)


def carried(after: Places) -> None:
    assert {field.name for field in fields(Places)} == {"keep", "at", "padded", "end", "grid", "links"}, (
        "a new field: test where it must be carried to"
    )
    assert after.grid == GRID
    assert after.links is LINKS


def test_one_index_of_places_keeps_the_other_fields() -> None:
    whole = places(T, first=1)
    one = whole.one(3)
    assert torch.equal(one.keep, whole.keep[:, 3:4])
    assert torch.equal(one.at, whole.at[:, 3:4])
    assert (one.padded, one.end) == (True, 1 + 4)
    carried(one)


def test_extended_places_keep_the_other_fields() -> None:
    extended = places(5).extended(replace(places(2, first=5), padded=False))
    assert extended.keep.shape == extended.at.shape == (B, 7)
    assert (extended.padded, extended.end) == (True, 7)
    carried(extended)


def test_coverage_repeats_all_fields_of_the_places_for_a_beam() -> None:
    mixer, seen = Unprojected(D, coverage=True), []
    states = torch.randn(B, 5, D)
    memory = Memory(states, replace(Places.of(states, padding_mask((5, 3, 1))), grid=GRID, links=LINKS))
    attend = mixer._attend_with_coverage
    mixer._attend_with_coverage = lambda query, memory, *others: seen.append(memory) or attend(query, memory, *others)
    rows = torch.arange(B).repeat_interleave(2)
    start = mixer.start(memory, B)
    state = replace(start, so_far=start.so_far[rows])
    x = torch.randn(2 * B, 1, D)
    mixer(x, Places.of(x, None), state)
    (read,) = seen
    assert torch.equal(read.places.keep, memory.places.keep[rows])
    assert torch.equal(read.places.at, memory.places.at[rows])
    assert torch.equal(read.places.links, LINKS[rows])
    assert read.places.grid == GRID
    assert torch.equal(read.key, start.memory.value.key[rows])
