"""The heat map in the terminal: readable without colour, never too wide, harmless to the terminal."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style

from saccade.errors import SaccadeError
from saccade.view.maps import AttentionMap, Axis
from saccade.view.terminal import heat_map

FULL = "█"


def plain(*labels: str) -> Axis:
    return Axis(labels, tuple(range(len(labels))))


def crossing(weights: np.ndarray, rows: Axis, columns: Axis) -> AttentionMap:
    return AttentionMap(weights.astype(np.float32), rows, columns, "cross")


def printed(map_: AttentionMap, *, width: int = 80, head: int | None = None, colour: bool = False) -> list[str]:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        _environ={"TERM": "xterm-256color"},  # whatever the tests themselves run under
    )
    for cached in (
        Style.parse,
        Style._add,
    ):  # a style keeps the codes it was first printed with, in another test's colours
        cached.cache_clear()
    console.print(heat_map(map_, head=head, width=width))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def backwards(columns: tuple[str, ...] = ("uno", "due", "tre", "quattro")) -> AttentionMap:
    return crossing(np.eye(4)[None, ::-1], plain("four", "three", "two", "one"), plain(*columns))


def test_reordering_is_seen_as_a_falling_line() -> None:
    heads, *rows = printed(backwards())[:5]
    places = [row.index(FULL) for row in rows]
    assert places == sorted(places, reverse=True)
    assert [row.split()[0] for row in rows] == ["four", "three", "two", "one"]
    # Each full cell stands exactly under the label of its column.
    assert places == [heads.index(label) for label in ("quattro", "tre", "due", "uno")]


def test_long_sentences_get_upright_labels_that_stand_on_their_columns() -> None:
    labels = tuple(f"word{index:02}" for index in range(20))
    lines = printed(crossing(np.eye(20)[None], plain(*labels), plain(*labels)), width=80)
    at = [line.index(FULL) for line in lines[6:26]]
    assert ["".join(line[place] for line in lines[:6]) for place in at] == list(labels)


def test_upright_labels_keep_marks_with_their_letters() -> None:
    lines = printed(crossing(np.eye(20)[None], plain(*"x" * 20), plain(*["e\u0301te\u0301馆"] * 20)), width=64)
    assert [set(line.split()) for line in lines[:4]] == [{"e\u0301"}, {"t"}, {"e\u0301"}, {"馆"}]


def test_without_colour_there_are_no_escape_codes() -> None:
    assert "\x1b" not in "".join(printed(backwards()))


def test_with_colour_strong_cells_fill_the_background() -> None:
    lines = printed(backwards(), colour=True)
    assert any("\x1b[38;2;" in line and ";48;2;" in line and FULL in line for line in lines)


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="truecolor")
    console.print(heat_map(backwards()))
    assert "48;2;" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_shades_follow_the_weight() -> None:
    weights = np.array([[[0.01, 0.06, 0.2, 0.4, 0.9]]])
    row = printed(crossing(weights, plain("x"), plain("aa", "bb", "cc", "dd", "ee")))[1]
    assert row == "x    ░░ ▒▒ ▓▓ ██"


def test_heads_are_averaged_or_chosen() -> None:
    two = crossing(np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), plain("x"), plain("aa", "bb"))
    assert printed(two)[1] == "x ▓▓ ▓▓"
    assert printed(two, head=1)[1] == "x    ██"
    with pytest.raises(SaccadeError, match="heads 0 to 1"):
        heat_map(two, head=2)


def test_too_many_columns_are_cut_and_counted() -> None:
    labels = tuple(str(index) for index in range(50))
    lines = printed(crossing(np.full((1, 1, 50), 0.02), plain("x"), plain(*labels)), width=40)
    assert "12 of 50 columns shown" in lines[-1]
    assert any(line.endswith("…") for line in lines)


@pytest.mark.parametrize("shape", [(1, 0, 0), (2, 0, 3), (2, 3, 0), (0, 2, 2)])
def test_empty_maps_say_so(shape: tuple[int, int, int]) -> None:
    axes = [plain(*("a" * size)) for size in shape[1:]]
    assert printed(crossing(np.zeros(shape), *axes)) == ["there is no attention to show"]


def test_weights_that_are_no_numbers_are_shown_as_such() -> None:
    assert printed(crossing(np.array([[[np.nan, 1.0]]]), plain("x"), plain("aa", "bb")))[1] == "x ?? ██"


def test_wide_and_combining_characters_keep_the_columns_straight() -> None:
    columns = plain("图书馆", "e\u0301te\u0301", "नमस्ते", "سلام", "👩\u200d🏫")
    rows = plain("馆", "e\u0301", "ok", "م", "🏫")
    lines = printed(crossing(np.eye(5)[None], rows, columns), width=60)
    assert cell_len(lines[1].split(FULL)[0]) == 3  # two for the widest row label and one of air
    assert cell_len(lines[2].split(FULL)[0]) == 3 + cell_len("图书馆") + 1


def test_hostile_labels_cannot_command_the_terminal() -> None:
    hostile = plain("\x1b[2J\x1b]0;owned\x07", "a\nb", "\u202eevil", "\ud800")
    text = heat_map(crossing(np.eye(4)[None], hostile, hostile)).plain
    assert not any(character in text for character in "\x1b\x07\u202e\ud800\r")
    assert "a b" in text


@given(
    st.lists(st.text(max_size=20), min_size=1, max_size=30),
    st.lists(st.text(max_size=20), min_size=1, max_size=4),
    st.integers(1, 120),
)
def test_no_line_is_ever_wider_than_asked(columns: list[str], rows: list[str], width: int) -> None:
    map_ = crossing(np.full((1, len(rows), len(columns)), 0.5), plain(*rows), plain(*columns))
    assert all(cell_len(line) <= width for line in heat_map(map_, width=width).plain.split("\n"))
