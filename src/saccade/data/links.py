"""Word alignments as text (the Pharaoh format): one line a sentence, `0-0 1-2` for source word 0 with target word 0 and
so on. Gold files also say `1p2` (or `1?2`) for a link that is possible but not sure; some count words from 1."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from saccade.errors import DataError

Links = frozenset[tuple[int, int]]  # (source word, target word), counted from 0; words are what white space parts

_LINK = re.compile(r"([0-9]{1,6})([-p?])([0-9]{1,6})")
_TELLING = 20  # lines without a single 0 are too many to be an accident


@dataclass(frozen=True, slots=True)
class Gold:
    """What people linked: surely, or possibly (which includes the sure)."""

    sure: Links
    possible: Links


def transposed(links: Links) -> Links:
    """The same links seen from the other side."""
    return frozenset((target, source) for source, target in links)


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """One line, sorted by source word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def marked(gold: Gold) -> str:
    """The same with `1p2` for what is only possible."""
    return " ".join(f"{s}{'-' if (s, t) in gold.sure else 'p'}{t}" for s, t in sorted(gold.possible))


def parse(line: str, place: str) -> Gold:
    """One line; a bad link is an error that names `place` ("file:line")."""
    sure, possible = set(), set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if not match:
            raise DataError(
                f"{place}: '{word}' is not a link; write source-target, such as 0-0, or 0p0 if only possible"
            )
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def parse_all(lines: Iterable[str], name: str, base: int | None = None) -> list[Gold]:
    """The lines of a file, counted from 0 whatever the file counts from: `base` says it, or the file shows it."""
    found = [parse(line, f"{name}:{number}") for number, line in enumerate(lines, 1)]
    first = _base(found, name) if base is None else base
    return [_from_zero(each, first, f"{name}:{number}") for number, each in enumerate(found, 1)] if first else found


def _base(found: Sequence[Gold], name: str) -> int:
    """A 0 anywhere tells that words count from 0; none in many lines, that they count from 1."""
    if any(0 in link for each in found for link in each.possible):
        return 0
    linked = sum(bool(each.possible) for each in found)
    if not linked:
        return 0
    if linked < _TELLING:
        raise DataError(
            f"{name}: no link has a 0, so words may count from 0 or from 1; say which with a base of 0 or 1"
        )
    return 1


def _from_zero(gold: Gold, base: int, place: str) -> Gold:
    if any(0 in link for link in gold.possible):
        raise DataError(f"{place}: has a 0, but words count from {base} there; leave the base to be found, or say 0")
    return Gold(_shifted(gold.sure, base), _shifted(gold.possible, base))


def _shifted(links: Links, base: int) -> Links:
    return frozenset((source - base, target - base) for source, target in links)


def inside(links: Links, source: int, target: int, place: str) -> Links:
    """The links, if all of them are between `source` and `target` words; else an error that names `place`."""
    for s, t in sorted(links):
        if s >= source or t >= target:
            raise DataError(f"{place}: {s}-{t} links a word that is not there: there are {source} and {target}, from 0")
    return links
