"""HTML split into tags, which are kept, and texts, which are translated and escaped again.

The scanner is our own because the standard library's parser takes seconds for a few thousand unfinished tags. Anything
that is not a complete tag counts as text.
"""

import html
import re
from collections.abc import Sequence

from saccade.serve.sentences import interleave

# A comment; a tag (the element of some is skipped as a whole); a declaration or a processing instruction. The
# possessive quantifiers (++, *+) never backtrack, so the time is linear in the text.
_TAG = r"""(?:[^<>"']|"[^"]*+"|'[^']*+')*+>"""
_TOKEN = re.compile(rf"<(?:!--|(?P<closes>/?)(?P<name>[A-Za-z][^\s/<>\"']*+){_TAG}|[!?]{_TAG})")
_UNTRANSLATED_ELEMENTS = frozenset(("script", "style", "textarea", "code", "pre", "kbd", "samp", "var"))


class Markup:
    """A piece of HTML. `texts` are the texts to translate; `joined` returns the HTML with their translations."""

    def __init__(self, source: str):
        self._gaps: list[str] = []  # the tags before each text, and those after the last one
        self.texts: list[str] = []
        self._parse(source)

    def _parse(self, source: str) -> None:
        begin = end = 0  # of the tags since the last text
        for token in _TOKEN.finditer(source):
            if token.start() < end:
                continue  # inside an element that is not translated
            if source[end : token.start()].strip():
                self._gaps.append(source[begin:end])
                self.texts.append(html.unescape(source[end : token.start()]))
                begin = token.start()
            end = _end_of(source, token)
        if source[end:].strip():
            self._gaps.append(source[begin:end])
            self.texts.append(html.unescape(source[end:]))
            begin = len(source)
        self._gaps.append(source[begin:])

    def joined(self, texts: Sequence[str]) -> str:
        return interleave(self._gaps, [html.escape(text, quote=False) for text in texts])


def _end_of(source: str, token: re.Match[str]) -> int:
    """Where a tag ends. A comment, script or other untranslated element ends with its closing tag."""
    name = (token["name"] or "").lower()
    if token[0] == "<!--":
        closing = "-->"
    elif name in _UNTRANSLATED_ELEMENTS and not token["closes"] and not token[0].endswith("/>"):
        closing = f"</{token['name']}"
    else:
        return token.end()
    start = source.find(closing, token.end())
    return len(source) if start < 0 else start + (len(closing) if closing == "-->" else 0)
