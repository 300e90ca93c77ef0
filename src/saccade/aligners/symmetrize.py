"""Symmetrization: combine the word alignments of both directions into one (Och & Ney 2003; grow-diag: Koehn et al.
2005). Both are sets of (source word, target word)."""

from collections.abc import Callable, Iterable, Iterator

from saccade.data.links import GradedLinks, Links

NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # the diagonal comes last


def intersection(forward: Links, backward: Links) -> Links:
    """Links of both directions: high precision, low recall."""
    return forward & backward


def union(forward: Links, backward: Links) -> Links:
    """Links of either direction: high recall, low precision."""
    return forward | backward


def grow_diag(forward: Links, backward: Links) -> Links:
    """Start from the intersection, and repeatedly add links of the union that are neighbors of a link (diagonals
    included) if one of their two words has no link yet."""
    candidates = forward | backward
    growing = _GrowingLinks(forward & backward)
    grown = True
    while grown:
        grown = [
            neighbor
            for link in sorted(growing.links)
            for neighbor in _neighbors(link)
            if neighbor in candidates and growing.add_if_one_unlinked(neighbor)
        ]
    return frozenset(growing.links)


def grow_diag_final(forward: Links, backward: Links) -> Links:
    """`grow_diag`, then all links of either direction of which at least one word has no link yet."""
    growing = _GrowingLinks(grow_diag(forward, backward))
    for link in _one_after_the_other(forward, backward):
        growing.add_if_one_unlinked(link)
    return frozenset(growing.links)


def grow_diag_final_and(forward: Links, backward: Links) -> Links:
    """`grow_diag`, then all links of either direction of which both words have no link yet."""
    growing = _GrowingLinks(grow_diag(forward, backward))
    for link in _one_after_the_other(forward, backward):
        growing.add_if_both_unlinked(link)
    return frozenset(growing.links)


def graded(forward: Links, backward: Links) -> GradedLinks:
    """All links; those of both directions are sure, the others only possible."""
    return GradedLinks(forward & backward, forward | backward)


SYMMETRIZE: dict[str, Callable[[Links, Links], Links]] = {
    "intersection": intersection,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final": grow_diag_final,
    "grow-diag-final-and": grow_diag_final_and,
}


class _GrowingLinks:
    """A growing set of links, and the words they cover."""

    def __init__(self, links: Iterable[tuple[int, int]]):
        self.links = set(links)
        self._sources = {source for source, _ in self.links}
        self._targets = {target for _, target in self.links}

    def add_if_one_unlinked(self, link: tuple[int, int]) -> bool:
        """Add a link if at least one of its words has none yet. Returns whether it was added."""
        return (link[0] not in self._sources or link[1] not in self._targets) and self._add(link)

    def add_if_both_unlinked(self, link: tuple[int, int]) -> bool:
        """Add a link if both of its words have none yet. Returns whether it was added."""
        return link[0] not in self._sources and link[1] not in self._targets and self._add(link)

    def _add(self, link: tuple[int, int]) -> bool:
        self.links.add(link)
        self._sources.add(link[0])
        self._targets.add(link[1])
        return True


def _neighbors(link: tuple[int, int]) -> Iterator[tuple[int, int]]:
    return ((link[0] + down, link[1] + right) for down, right in NEIGHBORS)


def _one_after_the_other(forward: Links, backward: Links) -> Iterator[tuple[int, int]]:
    yield from sorted(forward)
    yield from sorted(backward)
