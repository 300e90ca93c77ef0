"""The HTML elements of reports. Arguments called `content`, `headers` and `rows` are HTML; plain text must be passed
through `escape`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["definition", "escape", "missing", "paragraph", "scroll_area", "table"]


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def missing(text: str) -> str:
    """A note in place of a missing value, which says why it is missing."""
    return f'<span class="missing">{escape(text)}</span>'


def definition(term: str, content: str) -> str:
    """An entry of a definition list. The text direction of the content is determined from its text."""
    return f'<div><dt>{escape(term)}</dt><dd dir="auto">{content}</dd></div>'


def table(css_class: str, name: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first cell of each row is its header. `name` is the label for screen readers."""
    top = "".join(f'<th scope="col">{header}</th>' if header else "<td></td>" for header in headers)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    whole = f'<table class="{css_class}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    return scroll_area(whole, name)


def scroll_area(content: str, name: str) -> str:
    """A box that scrolls if its content is too large. It can be focused, so that the keyboard scrolls it too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{content}</div>'
