"""A heat map for the terminal. It uses color where available, and shade characters everywhere."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from saccade.errors import SaccadeError
from saccade.view.maps import AttentionMap

STRONG_COLOR, WEAK_COLOR = "rgb(238,112,30)", "rgb(62,134,200)"
# (minimum weight, character, style). The thresholds are the same on every map, so that maps can be compared. Large
# weights fill the background and small ones are a texture on the terminal's own background: on light and on dark
# terminals, a larger weight shows more color.
WEIGHT_SHADES = (
    (0.6, "█", f"{STRONG_COLOR} on {STRONG_COLOR}"),
    (0.3, "▓", f"{WEAK_COLOR} on {WEAK_COLOR}"),
    (0.15, "▒", WEAK_COLOR),
    (0.05, "░", WEAK_COLOR),
)

MAX_ROW_LABEL_WIDTH = 18  # all widths are in terminal cells
MAX_COLUMN_LABEL_WIDTH = 12  # also the maximum height of a vertical label, in characters
MIN_COLUMN_WIDTH = 2  # enough for one wide character of a vertical label
INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs")  # Unicode categories: control, format and surrogate characters
JOINERS = "\u200c\u200d"  # also invisible, but they change the shape of the letters next to them


@dataclass(frozen=True)
class _Layout:
    """The width of the row labels and of each column that is shown."""

    margin: int
    widths: tuple[int, ...]
    vertical: bool  # column labels run downwards, one character per line


def heat_map(map: AttentionMap, *, head: int | None = None, width: int = 80) -> Text:  # noqa: A002 - the word of this package
    """Draw attention weights as text: one row per query, one column per key. `head=None` averages the heads; no line is
    wider than `width` terminal cells."""
    weights = _select_head(map.weights, head)
    if not weights.size:
        return _join([Text("there is no attention to show")], width)
    rows = [_printable(label) for label in map.rows.labels]
    columns = [_printable(label) for label in map.columns.labels]
    layout = _lay_out(rows, columns, width)
    cut = len(layout.widths) < len(columns)
    lines = _vertical_labels(columns, layout) if layout.vertical else [_horizontal_labels(columns, layout)]
    lines += [_row(label, values, layout, cut) for label, values in zip(rows, weights, strict=True)]
    lines.append(_legend())
    if cut:
        lines.append(Text(f"{len(layout.widths)} of {len(columns)} columns shown: the terminal is too narrow for all"))
    return _join(lines, width)


def _select_head(weights: np.ndarray, head: int | None) -> np.ndarray:
    heads = weights.shape[0]
    if not weights.size:
        return np.zeros((0, 0), dtype=np.float32)
    if head is None:
        return weights.mean(axis=0)
    if not 0 <= head < heads:
        raise SaccadeError(f"head {head}: this attention has heads 0 to {heads - 1}")
    return weights[head]


def _printable(label: str) -> str:
    """The label as a single line without escape sequences or changes of direction, which could alter the terminal."""
    spaced = "".join(" " if character.isspace() else character for character in label)
    kept = (c for c in spaced if c in JOINERS or unicodedata.category(c) not in INVISIBLE_CATEGORIES)
    return "".join(kept).strip() or "␣"


def _lay_out(rows: Sequence[str], columns: Sequence[str], width: int) -> _Layout:
    """Horizontal column labels if all of them fit; otherwise vertical ones, as many as fit."""
    longest = max(cell_len(label) for label in rows)
    margin = max(1, min(longest, MAX_ROW_LABEL_WIDTH, width // 3))
    available = width - margin - 1  # one blank cell between the row labels and the map
    horizontal = tuple(max(MIN_COLUMN_WIDTH, min(cell_len(label), MAX_COLUMN_LABEL_WIDTH)) for label in columns)
    if sum(horizontal) + len(horizontal) <= available:
        return _Layout(margin, horizontal, vertical=False)
    step = MIN_COLUMN_WIDTH + 1
    fitting = available // step
    if fitting < len(columns):
        fitting = max(0, (available - 1) // step)  # the ellipsis at the end of a cut line takes one cell
    return _Layout(margin, (MIN_COLUMN_WIDTH,) * min(fitting, len(columns)), vertical=True)


def _horizontal_labels(columns: Sequence[str], layout: _Layout) -> Text:
    line = Text(" " * (layout.margin + 1))
    for label, width in zip(columns, layout.widths, strict=True):
        line.append(set_cell_size(_shorten(label, width), width) + " ")
    return line


def _vertical_labels(columns: Sequence[str], layout: _Layout) -> list[Text]:
    labels = [_vertical_label(label) for label in columns[: len(layout.widths)]]
    height = max((len(characters) for characters in labels), default=0)
    lines = []
    for row in range(height):
        line = Text(" " * (layout.margin + 1))
        for characters in labels:
            blank = height - len(characters)  # labels are aligned at the bottom
            character = characters[row - blank] if row >= blank else ""
            line.append(set_cell_size(character, MIN_COLUMN_WIDTH) + " ")
        lines.append(line)
    return lines


def _vertical_label(label: str) -> list[str]:
    characters = _characters(label)
    if len(characters) <= MAX_COLUMN_LABEL_WIDTH:
        return characters
    return [*characters[: MAX_COLUMN_LABEL_WIDTH - 1], "⋮"]


def _characters(label: str) -> list[str]:
    """Split into user-perceived characters: combining marks and joiners stay with their letter."""
    characters: list[str] = []
    for character in label:
        joined = characters and (cell_len(character) == 0 or characters[-1][-1] in JOINERS)
        if joined:
            characters[-1] += character
        else:
            characters.append(character)
    return characters


def _shorten(label: str, width: int) -> str:
    if cell_len(label) <= width:
        return label
    kept = ""
    for character in _characters(label):
        if cell_len(kept + character) > width - 1:
            break
        kept += character
    return kept + "…"


def _row(label: str, weights: np.ndarray, layout: _Layout, cut: bool) -> Text:
    short = _shorten(label, layout.margin)
    line = Text(" " * (layout.margin - cell_len(short)) + short + " ")
    for weight, width in zip(weights.tolist(), layout.widths, strict=False):
        character, style = _shade(weight)
        line.append(character * width, style=style)
        line.append(" ")
    if cut:
        line.append("…", style="dim")
    return line


def _shade(weight: float) -> tuple[str, str]:
    """The character and the style of a weight."""
    if math.isnan(weight):
        return "?", ""
    return next(((character, style) for least, character, style in WEIGHT_SHADES if weight >= least), (" ", ""))


def _legend() -> Text:
    line = Text("weight at least ")
    for least, character, style in reversed(WEIGHT_SHADES):
        line.append(character * MIN_COLUMN_WIDTH, style=style)
        line.append(f" {least:g}  ")
    return line


def _join(lines: Sequence[Text], width: int) -> Text:
    for line in lines:
        line.rstrip()
        line.truncate(max(width, 1), overflow="crop")
    # Cropped, not wrapped: in a wrapped row the cells would no longer be below their column labels.
    whole = Text("\n", no_wrap=True, overflow="crop").join(lines)
    whole.no_wrap, whole.overflow = True, "crop"
    return whole
