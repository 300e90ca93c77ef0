"""Sentence splitting. The white space between sentences is kept, so the translated text has the same layout.

A line break or a tab (columns) ends a sentence. So does a full stop, question mark, exclamation mark or ellipsis before
white space, and 。, ！ or ？ even without white space, unless a lowercase letter follows. A full stop after an ordinal
("4. März"), an initial or a known abbreviation does not end a sentence.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# A line break or a tab always separates; other white space may be inside a sentence. The possessive quantifiers (++,
# *+) of all patterns never backtrack, so the time is linear in the text.
_BREAK = re.compile(r"[\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029]\s*+")
_CLOSING = "\"'”’»›)\\]}“"  # “ closes a German quotation
_END = re.compile(rf"(?:(?<![.!?…])[.!?…]++[{_CLOSING}]*+(?=\s)|(?<![。！？])[。！？]++[」』”）]*+)\s*+")
_ORDINAL = re.compile(r"\d{1,3}")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*+[^\W\d_]")
_MAX_WORD_CHARACTERS = 40  # how far before a full stop its word is looked for

_ENGLISH = "mr mrs ms dr prof st jr sr gen col capt lt sgt rev hon gov sen rep pres vs etc inc ltd corp approx dept est"
_GERMAN = "bzw ca dipl evtl ggf hr fr frl inkl ing sog usw vgl zzgl geb gest hrsg allg bspw dgl einschl exkl insb str"
_ROMANCE_AND_DUTCH = "mme mlle mm env sra srta dra ud uds ej dott avv sigg ecc exmo exma enz mevr dhr"
_ABBREVIATIONS = frozenset(f"{_ENGLISH} {_GERMAN} {_ROMANCE_AND_DUTCH}".split())
# abbreviations only before a number: "no" also ends sentences
_NUMBERED = "no nos nr nrn núm vol fig figs abb abs art bd kap pp pag pág págs eq op tel"
_NUMBER_ABBREVIATIONS = frozenset(_NUMBERED.split())


def interleave(gaps: Sequence[str], texts: Sequence[str]) -> str:
    """gaps[0] + texts[0] + gaps[1] + … + gaps[-1]; there is one more gap than texts."""
    parts = [gaps[0]]
    for text, gap in zip(texts, gaps[1:], strict=True):
        parts += (text, gap)
    return "".join(parts)


@dataclass(frozen=True)
class SplitText:
    """The sentences of a text with their token counts, and the gaps before, between and after them:
    `interleave(gaps, sentences)` is the text."""

    gaps: tuple[str, ...]
    sentences: tuple[str, ...]
    token_counts: tuple[int, ...]

    def joined(self, sentences: Sequence[str]) -> str:
        """The text with its sentences replaced, for example by their translations."""
        return interleave(self.gaps, sentences)


def split_sentences(text: str, count_tokens: Callable[[str], int], max_tokens: int) -> SplitText:
    """Split a text into sentences, and a sentence of more than `max_tokens` tokens into parts. `count_tokens` is called
    once for each candidate."""
    gaps, sentences, token_counts, end = [], [], [], 0
    for begin, stop in _sentence_spans(text):
        for first, last, tokens in _cut(text, begin, stop, count_tokens, max_tokens):
            gaps.append(text[end:first])
            sentences.append(text[first:last])
            token_counts.append(tokens)
            end = last
    return SplitText((*gaps, text[end:]), tuple(sentences), tuple(token_counts))


def _sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """The begin and end of each sentence, without the white space around it."""
    begin = 0
    for end, following in [*((m.start(), m.end()) for m in _BREAK.finditer(text)), (len(text), len(text))]:
        for first, last in _sentences_of_line(text, begin, end):
            span = _stripped(text, first, last)
            if span[0] < span[1]:
                yield span
        begin = following


def _stripped(text: str, first: int, last: int) -> tuple[int, int]:
    """The span without white space at its ends."""
    while first < last and text[first].isspace():
        first += 1
    while first < last and text[last - 1].isspace():
        last -= 1
    return first, last


def _sentences_of_line(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    first = begin
    for mark in _END.finditer(text, begin, end):
        if mark.end() < end and _is_sentence_end(text, first, mark):
            yield first, mark.end()
            first = mark.end()
    yield first, end


def _is_sentence_end(text: str, first: int, mark: re.Match[str]) -> bool:
    """Whether a mark ends the sentence, and not only an ordinal, an initial or an abbreviation."""
    following = text[mark.end()]
    if following.islower():
        return False
    if mark[0].rstrip() != ".":
        return True
    before = text[max(first, mark.start() - _MAX_WORD_CHARACTERS) : mark.start()].rsplit(None, 1)
    word = before[-1].lstrip("\"'„“»«([{‚‘").casefold() if before else ""
    if word in _NUMBER_ABBREVIATIONS:
        return not following.isdigit()
    return not (_ORDINAL.fullmatch(word) or _INITIALS.fullmatch(word) or word in _ABBREVIATIONS)


# ── sentences that are too long ──


_CLAUSE = re.compile(r"[,;:–—，；：、]\s*")
_SPACE = re.compile(r"\s+")


def _cut(
    text: str, first: int, last: int, count_tokens: Callable[[str], int], max_tokens: int
) -> Iterator[tuple[int, int, int]]:
    """The span with its token count; one that is too long is halved until each part fits or is a single character."""
    waiting = [(first, last)]
    while waiting:
        first, last = waiting.pop()
        tokens = count_tokens(text[first:last])
        if last - first < 2 or tokens <= max_tokens:
            yield first, last, tokens
            continue
        left, right = _halves(text, first, last)
        waiting += [right, left]


def _halves(text: str, first: int, last: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two parts, cut near the middle: at the end of a clause, else at a space, else anywhere."""
    middle, quarter = (first + last) // 2, (last - first) // 4
    for pattern in (_CLAUSE, _SPACE):
        cuts = [m.end() for m in pattern.finditer(text, middle - quarter, middle + quarter)]
        for cut in sorted(cuts, key=lambda cut: abs(cut - middle)):
            if parts := _parts_at(text, first, cut, last):
                return parts
    cut = middle
    while cut < last - 1 and unicodedata.combining(text[cut]):  # do not separate a letter from its accents
        cut += 1
    return _parts_at(text, first, cut, last) or ((first, middle), (middle, last))


def _parts_at(text: str, first: int, cut: int, last: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The stripped spans on both sides of a cut; None if one of them is empty."""
    left, right = _stripped(text, first, cut), _stripped(text, cut, last)
    return (left, right) if left[0] < left[1] and right[0] < right[1] else None
