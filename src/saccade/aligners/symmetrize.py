"""Two directions made one. Each is a set of (source word, target word); they agree on their intersection, and what
only one of them says is added by rules (Och & Ney 2003; Koehn et al. 2005 for the growing)."""

from collections.abc import Callable, Iterable, Iterator

from saccade.data.links import Gold, Links

NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # the diagonal comes last


def intersection(forward: Links, backward: Links) -> Links:
    """What both say: few links, mostly right."""
    return forward & backward


def union(forward: Links, backward: Links) -> Links:
    """What either says: many links, more of them wrong."""
    return forward | backward


def grow_diag(forward: Links, backward: Links) -> Links:
    """The intersection, grown from link to neighbouring link of the union (beside or across), as long as one of the
    two words had none."""
    candidates = forward | backward
    found = _Growing(forward & backward)
    grown = True
    while grown:
        grown = [
            link for link in sorted(found.links) for near in _near(link) if near in candidates and found.add_new(near)
        ]
    return frozenset(found.links)


def grow_diag_final(forward: Links, backward: Links) -> Links:
    """`grow_diag`, then every link of either direction one of whose words still has none."""
    found = _Growing(grow_diag(forward, backward))
    for link in _in_turn(forward, backward):
        found.add_new(link)
    return frozenset(found.links)


def grow_diag_final_and(forward: Links, backward: Links) -> Links:
    """`grow_diag`, then every link of either direction both of whose words still have none."""
    found = _Growing(grow_diag(forward, backward))
    for link in _in_turn(forward, backward):
        found.add_alone(link)
    return frozenset(found.links)


def graded(forward: Links, backward: Links) -> Gold:
    """All links; sure are those that both directions have."""
    return Gold(forward & backward, forward | backward)


SYMMETRIZE: dict[str, Callable[[Links, Links], Links]] = {
    "intersection": intersection,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final": grow_diag_final,
    "grow-diag-final-and": grow_diag_final_and,
}


class _Growing:
    """Links so far, and the words they cover."""

    def __init__(self, links: Iterable[tuple[int, int]]):
        self.links = set(links)
        self._sources = {source for source, _ in self.links}
        self._targets = {target for _, target in self.links}

    def add_new(self, link: tuple[int, int]) -> bool:
        """Take a link if one of its words has none yet; say whether."""
        return (link[0] not in self._sources or link[1] not in self._targets) and self._add(link)

    def add_alone(self, link: tuple[int, int]) -> bool:
        """Take a link if neither of its words has one yet."""
        return link[0] not in self._sources and link[1] not in self._targets and self._add(link)

    def _add(self, link: tuple[int, int]) -> bool:
        self.links.add(link)
        self._sources.add(link[0])
        self._targets.add(link[1])
        return True


def _near(link: tuple[int, int]) -> Iterator[tuple[int, int]]:
    return ((link[0] + down, link[1] + right) for down, right in NEIGHBORS)


def _in_turn(forward: Links, backward: Links) -> Iterator[tuple[int, int]]:
    yield from sorted(forward)
    yield from sorted(backward)
