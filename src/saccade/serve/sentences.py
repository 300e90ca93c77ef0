"""Text into sentences and back: what stands between two sentences is kept to the letter.

A line ends a sentence, a tab does (columns), and so does a full stop, question or exclamation mark before white
space. Not so a stop after an ordinal ("4. März"), an initial or a known abbreviation, or before a small letter.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# A line break or a tab parts texts; other white space may stand inside a sentence. Every pattern takes what it has
# taken for good (++, *+), so that no text makes them slow.
_BREAK = re.compile(r"[\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029]\s*+")
_CLOSING = "\"'”’»›)\\]}“"  # “ closes a German quotation
_END = re.compile(rf"(?:(?<![.!?…])[.!?…]++[{_CLOSING}]*+(?=\s)|(?<![。！？])[。！？]++[」』”）]*+)\s*+")
_ORDINAL = re.compile(r"\d{1,3}")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*+[^\W\d_]")
_LONGEST_WORD = 40  # characters looked at before a stop

_ENGLISH = "mr mrs ms dr prof st jr sr gen col capt lt sgt rev hon gov sen rep pres vs etc inc ltd corp approx dept est"
_GERMAN = "bzw ca dipl evtl ggf hr fr frl inkl ing sog usw vgl zzgl geb gest hrsg allg bspw dgl einschl exkl insb str"
_ROMANCE_AND_DUTCH = "mme mlle mm env sra srta dra ud uds ej dott avv sigg ecc exmo exma enz mevr dhr"
_ABBREVIATIONS = frozenset(f"{_ENGLISH} {_GERMAN} {_ROMANCE_AND_DUTCH}".split())
_NUMBERED = "no nos nr nrn núm vol fig figs abb abs art bd kap pp pag pág págs eq op tel"  # words before a number only
_BEFORE_NUMBERS = frozenset(_NUMBERED.split())


@dataclass(frozen=True)
class Pieces:
    """A text taken apart: `gaps[0] + sentences[0] + gaps[1] + … + gaps[-1]` is the text."""

    gaps: tuple[str, ...]
    sentences: tuple[str, ...]

    def joined(self, sentences: Sequence[str]) -> str:
        """The text with other sentences in the places of its own."""
        parts = [self.gaps[0]]
        for sentence, gap in zip(sentences, self.gaps[1:], strict=True):
            parts += (sentence, gap)
        return "".join(parts)


def split(text: str, fits: Callable[[str], bool] = lambda sentence: True) -> Pieces:
    """Take a text apart; a sentence that does not fit is cut further."""
    gaps, sentences, end = [], [], 0
    for begin, stop in _spans(text):
        for first, last in _cut(text, begin, stop, fits):
            gaps.append(text[end:first])
            sentences.append(text[first:last])
            end = last
    return Pieces((*gaps, text[end:]), tuple(sentences))


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each sentence begins and ends, white space left out on both sides."""
    begin = 0
    for end, following in [*((m.start(), m.end()) for m in _BREAK.finditer(text)), (len(text), len(text))]:
        for first, last in _in_line(text, begin, end):
            span = _bare(text, first, last)
            if span[0] < span[1]:
                yield span
        begin = following


def _bare(text: str, first: int, last: int) -> tuple[int, int]:
    while first < last and text[first].isspace():
        first += 1
    while first < last and text[last - 1].isspace():
        last -= 1
    return first, last


def _in_line(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    first = begin
    for mark in _END.finditer(text, begin, end):
        if mark.end() < end and _ends(text, first, mark):
            yield first, mark.end()
            first = mark.end()
    yield first, end


def _ends(text: str, first: int, mark: re.Match[str]) -> bool:
    """Whether a sentence ends at a mark, and not only a number, an initial or an abbreviation."""
    following = text[mark.end()]
    if following.islower():
        return False
    if mark[0].rstrip() != ".":
        return True
    before = text[max(first, mark.start() - _LONGEST_WORD) : mark.start()].rsplit(None, 1)
    word = before[-1].lstrip("\"'„“»«([{‚‘").casefold() if before else ""
    if word in _BEFORE_NUMBERS:
        return not following.isdigit()
    return not (_ORDINAL.fullmatch(word) or _INITIALS.fullmatch(word) or word in _ABBREVIATIONS)


# ── sentences that are too long ──


_CLAUSE = re.compile(r"[,;:–—，；：、]\s*")
_SPACE = re.compile(r"\s+")


def _cut(text: str, first: int, last: int, fits: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """One span, or several: halved at the best place near the middle until each fits."""
    waiting = [(first, last)]
    while waiting:
        first, last = waiting.pop()
        if last - first < 2 or fits(text[first:last]):
            yield first, last
            continue
        left, right = _halves(text, first, last)
        waiting += [right, left]


def _halves(text: str, first: int, last: int) -> tuple[tuple[int, int], tuple[int, int]]:
    middle, quarter = (first + last) // 2, (last - first) // 4
    for pattern in (_CLAUSE, _SPACE):
        places = [m.end() for m in pattern.finditer(text, middle - quarter, middle + quarter)]
        for place in sorted(places, key=lambda place: abs(place - middle)):
            left, right = _bare(text, first, place), _bare(text, place, last)
            if left[0] < left[1] and right[0] < right[1]:
                return left, right
    place = middle
    while place < last - 1 and unicodedata.combining(text[place]):  # a letter keeps its accents
        place += 1
    left, right = _bare(text, first, place), _bare(text, place, last)
    if left[0] < left[1] and right[0] < right[1]:
        return left, right
    return (first, middle), (middle, last)
