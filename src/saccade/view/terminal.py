"""A heat map for the terminal, told by colour where there is colour and by shade characters everywhere."""

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

STRONG, MIDDLING = "rgb(238,112,30)", "rgb(62,134,200)"
# Each with the least weight that earns it, the same on every map, so that two maps may be compared. Strong
# shades fill the background, weak ones are a texture on the terminal's own: so more weight is more colour,
# whether the terminal is light or dark.
WEIGHT_SHADES = (
    (0.6, "█", f"{STRONG} on {STRONG}"),
    (0.3, "▓", f"{MIDDLING} on {MIDDLING}"),
    (0.15, "▒", MIDDLING),
    (0.05, "░", MIDDLING),
)

LONGEST_ROW_LABEL = 18
LONGEST_COLUMN_LABEL = 12
NARROW = 2  # columns a cell takes under a vertical label: enough for one wide character
INVISIBLE = ("Cc", "Cf", "Cs")  # control, format and surrogate characters
JOINERS = "\u200c\u200d"  # invisible too, but they shape the letters beside them


@dataclass(frozen=True)
class _Layout:
    """How the columns are laid out: the width of the row labels and of each column that is shown."""

    margin: int
    widths: tuple[int, ...]
    upright: bool  # labels run downwards, one character to a line


def heat_map(map: AttentionMap, *, head: int | None = None, width: int = 80) -> Text:  # noqa: A002 - the word of this package
    """Rows look at columns. `head=None` averages the heads; no line is wider than `width`."""
    weights = _one_matrix(map.weights, head)
    if not weights.size:
        return _joined([Text("there is no attention to show")], width)
    rows = [_readable(label) for label in map.rows.labels]
    columns = [_readable(label) for label in map.columns.labels]
    layout = _lay_out(rows, columns, width)
    cut = len(layout.widths) < len(columns)
    lines = _upright_heads(columns, layout) if layout.upright else [_level_heads(columns, layout)]
    lines += [_row(label, values, layout, cut) for label, values in zip(rows, weights, strict=True)]
    lines.append(_legend())
    if cut:
        lines.append(Text(f"{len(layout.widths)} of {len(columns)} columns shown, for want of width"))
    return _joined(lines, width)


def _one_matrix(weights: np.ndarray, head: int | None) -> np.ndarray:
    heads = weights.shape[0]
    if not weights.size:
        return np.zeros((0, 0), dtype=np.float32)
    if head is None:
        return weights.mean(axis=0)
    if not 0 <= head < heads:
        raise SaccadeError(f"head {head}: this attention has heads 0 to {heads - 1}")
    return weights[head]


def _readable(label: str) -> str:
    """The label as one harmless line: no escape sequence or change of direction reaches the terminal."""
    spaced = "".join(" " if character.isspace() else character for character in label)
    kept = (each for each in spaced if each in JOINERS or unicodedata.category(each) not in INVISIBLE)
    return "".join(kept).strip() or "␣"


def _lay_out(rows: Sequence[str], columns: Sequence[str], width: int) -> _Layout:
    """Level labels where all of them fit; else upright ones, as many as fit."""
    longest = max(cell_len(label) for label in rows)
    margin = max(1, min(longest, LONGEST_ROW_LABEL, width // 3))
    room = width - margin - 1  # one column of air between the labels and the cells
    level = tuple(max(NARROW, min(cell_len(label), LONGEST_COLUMN_LABEL)) for label in columns)
    if sum(level) + len(level) <= room:
        return _Layout(margin, level, upright=False)
    step = NARROW + 1
    fitting = room // step
    if fitting < len(columns):
        fitting = max(0, (room - 1) // step)  # the ellipsis at the end of a cut line needs its place too
    return _Layout(margin, (NARROW,) * min(fitting, len(columns)), upright=True)


def _level_heads(columns: Sequence[str], layout: _Layout) -> Text:
    line = Text(" " * (layout.margin + 1))
    for label, width in zip(columns, layout.widths, strict=True):
        line.append(set_cell_size(_shortened(label, width), width) + " ")
    return line


def _upright_heads(columns: Sequence[str], layout: _Layout) -> list[Text]:
    stacks = [_stack(label) for label in columns[: len(layout.widths)]]
    height = max((len(stack) for stack in stacks), default=0)
    lines = []
    for level in range(height):
        line = Text(" " * (layout.margin + 1))
        for stack in stacks:
            above = height - len(stack)  # labels stand on the map, so short ones begin lower
            character = stack[level - above] if level >= above else ""
            line.append(set_cell_size(character, NARROW) + " ")
        lines.append(line)
    return lines


def _stack(label: str) -> list[str]:
    characters = _characters(label)
    if len(characters) <= LONGEST_COLUMN_LABEL:
        return characters
    return [*characters[: LONGEST_COLUMN_LABEL - 1], "⋮"]


def _characters(label: str) -> list[str]:
    """What a reader calls characters: marks and joiners stay with the letter they belong to."""
    characters: list[str] = []
    for character in label:
        joined = characters and (cell_len(character) == 0 or characters[-1][-1] in JOINERS)
        if joined:
            characters[-1] += character
        else:
            characters.append(character)
    return characters


def _shortened(label: str, width: int) -> str:
    if cell_len(label) <= width:
        return label
    kept = ""
    for character in _characters(label):
        if cell_len(kept + character) > width - 1:
            break
        kept += character
    return kept + "…"


def _row(label: str, weights: np.ndarray, layout: _Layout, cut: bool) -> Text:
    short = _shortened(label, layout.margin)
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
    line = Text("from ")
    for least, character, style in reversed(WEIGHT_SHADES):
        line.append(character * NARROW, style=style)
        line.append(f" {least:g}  ")
    return line


def _joined(lines: Sequence[Text], width: int) -> Text:
    for line in lines:
        line.rstrip()
        line.truncate(max(width, 1), overflow="crop")
    # Never wrapped: a folded row would no longer stand under its columns.
    whole = Text("\n", no_wrap=True, overflow="crop").join(lines)
    whole.no_wrap, whole.overflow = True, "crop"
    return whole
