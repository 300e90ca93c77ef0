"""HTML taken apart into tags, which stay as they are, and texts, which are translated and escaped again.

A scanner of our own, because the standard library's parser takes seconds over a few thousand unfinished tags. What is
no whole tag is text.
"""

import html
import re
from collections.abc import Sequence

# A comment; a script or the like with all that is in it; a tag, a declaration or an instruction. What was taken is
# never given back (++, *+), so that no text makes it slow.
_TAG = r"""(?:[^<>"']|"[^"]*+"|'[^']*+')*+>"""
_TOKEN = re.compile(rf"<(?:!--|(?P<closes>/?)(?P<name>[A-Za-z][^\s/<>\"']*+){_TAG}|[!?]{_TAG})")
_LEFT_ALONE = frozenset(("script", "style", "textarea", "code", "pre", "kbd", "samp", "var"))


class Markup:
    """A piece of HTML. `texts` are what is to be translated; `joined` puts other texts in their places."""

    def __init__(self, source: str):
        self._gaps: list[str] = []  # what stands before each text, and after the last
        self.texts: list[str] = []
        self._take(source)

    def _take(self, source: str) -> None:
        begin = end = 0  # of the tags since the last text
        for token in _TOKEN.finditer(source):
            if token.start() < end:
                continue  # inside of what was left alone
            if source[end : token.start()].strip():
                self._gaps.append(source[begin:end])
                self.texts.append(html.unescape(source[end : token.start()]))
                begin = token.start()
            end = _end(source, token)
        if source[end:].strip():
            self._gaps.append(source[begin:end])
            self.texts.append(html.unescape(source[end:]))
            begin = len(source)
        self._gaps.append(source[begin:])

    def joined(self, texts: Sequence[str]) -> str:
        parts = [self._gaps[0]]
        for text, gap in zip(texts, self._gaps[1:], strict=True):
            parts += (html.escape(text, quote=False), gap)
        return "".join(parts)


def _end(source: str, token: re.Match[str]) -> int:
    """Where a tag ends, with all that it hides from us: a comment, a script, code."""
    name = (token["name"] or "").lower()
    if token[0] == "<!--":
        closing = "-->"
    elif name in _LEFT_ALONE and not token["closes"] and not token[0].endswith("/>"):
        closing = f"</{token['name']}"
    else:
        return token.end()
    found = source.find(closing, token.end())
    return len(source) if found < 0 else found + (len(closing) if closing == "-->" else 0)
