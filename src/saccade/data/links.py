"""Word alignments in the Pharaoh format: one line per sentence pair; `0-0 1-2` links source word 0 with target word 0,
and source word 1 with target word 2. In gold files, `1p2` (or `1?2`) is a possible link that is not sure. Some gold
files count words from 1."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from saccade.errors import DataError

Links = frozenset[tuple[int, int]]  # (source word, target word), counted from 0; words are separated by white space

_BASE_OPTIONS = "--base (in `saccade align score`: --gold-base or --system-base)"
_LINK = re.compile(r"([0-9]{1,6})([-p?])([0-9]{1,6})")
_MIN_LINES_FOR_BASE = 20  # so many aligned lines without a 0 are not a coincidence: words count from 1


@dataclass(frozen=True, slots=True)
class GradedLinks:
    """The links of a pair, sure or only possible. `possible` includes the sure ones."""

    sure: Links
    possible: Links


def transposed(links: Links) -> Links:
    """The links with source and target swapped."""
    return frozenset((target, source) for source, target in links)


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """The links as one line, sorted by source word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def pharaoh_graded(links: GradedLinks) -> str:
    """The links as one line, with `1p2` for those that are only possible."""
    return " ".join(f"{s}{'-' if (s, t) in links.sure else 'p'}{t}" for s, t in sorted(links.possible))


def parse(line: str, location: str) -> GradedLinks:
    """Parse one line. DataError with `location` ("file:line") if a link is invalid."""
    sure, possible = set(), set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if not match:
            raise DataError(
                f"{location}: '{word}' is not a link; write source-target, such as 0-0, or 0p0 for a possible link"
            )
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GradedLinks(frozenset(sure), frozenset(possible))


def parse_all(lines: Iterable[str], name: str, base: int | None = None) -> list[GradedLinks]:
    """Parse the lines of a file, which counts words from `base` (None: detect it). The result counts from 0."""
    parsed = [parse(line, f"{name}:{number}") for number, line in enumerate(lines, 1)]
    base = _detect_base(parsed, name) if base is None else base
    return [_from_zero(links, base, f"{name}:{number}") for number, links in enumerate(parsed, 1)] if base else parsed


def _detect_base(parsed: Sequence[GradedLinks], name: str) -> int:
    """0 if any link has a 0 or there are no links; 1 if many lines have links but none has a 0; else DataError."""
    if any(0 in link for links in parsed for link in links.possible):
        return 0
    aligned = sum(bool(links.possible) for links in parsed)
    if not aligned:
        return 0
    if aligned < _MIN_LINES_FOR_BASE:
        raise DataError(
            f"{name}: no link has a 0, so the first word may be 0 or 1; set the base to 0 or 1 with {_BASE_OPTIONS}"
        )
    return 1


def _from_zero(links: GradedLinks, base: int, location: str) -> GradedLinks:
    if any(0 in link for link in links.possible):
        raise DataError(
            f"{location}: has a 0, but the base, the index of the first word, is {base}; "
            f"set it to 0 or auto with {_BASE_OPTIONS}"
        )
    return GradedLinks(_shifted(links.sure, base), _shifted(links.possible, base))


def _shifted(links: Links, base: int) -> Links:
    return frozenset((source - base, target - base) for source, target in links)


def check_range(links: Links, source: int, target: int, location: str) -> Links:
    """The links, unchanged. DataError with `location` if one is outside of `source` and `target` words."""
    for s, t in sorted(links):
        if s >= source or t >= target:
            lengths = f"{source} source and {target} target words, counted from 0"
            raise DataError(f"{location}: the link {s}-{t} is out of range: the pair has {lengths}; correct the link")
    return links
