"""The few pieces of HTML that reports are made of. What is handed in is HTML already: text goes through `escape`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["entry", "escape", "missing", "paragraph", "scrolling", "table"]


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def missing(text: str) -> str:
    """What a reader would look for here, and why it is not there."""
    return f'<span class="missing">{escape(text)}</span>'


def entry(term: str, said: str) -> str:
    """A line of a list: a word, and what a model or a person wrote, in whatever direction it runs."""
    return f'<div><dt>{escape(term)}</dt><dd dir="auto">{said}</dd></div>'


def table(kind: str, name: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows begin with what they are about. `kind` is a class of the style, `name` is for who cannot see."""
    top = "".join(f'<th scope="col">{head}</th>' if head else "<td></td>" for head in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    whole = f'<table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    return scrolling(whole, name)


def scrolling(content: str, name: str) -> str:
    """What may be larger than its place, and can be reached by the keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{content}</div>'
