"""The heat map in the terminal: readable without color, never wider than the terminal, free of control characters."""

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


def cross_map(weights: np.ndarray, rows: Axis, columns: Axis) -> AttentionMap:
    return AttentionMap(weights.astype(np.float32), rows, columns, "cross")


def printed(map_: AttentionMap, *, width: int = 80, head: int | None = None, color: bool = False) -> list[str]:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="truecolor" if color else None,
        _environ={"TERM": "xterm-256color"},  # independent of the environment of the tests
    )
    # rich caches the escape codes of a style, for the color system of the first console that printed it.
    for cached in (Style.parse, Style._add):
        cached.cache_clear()
    console.print(heat_map(map_, head=head, width=width))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def reversed_order(columns: tuple[str, ...] = ("uno", "due", "tre", "quattro")) -> AttentionMap:
    return cross_map(np.eye(4)[None, ::-1], plain("four", "three", "two", "one"), plain(*columns))


def test_reversed_word_order_is_an_antidiagonal_from_top_right_to_bottom_left() -> None:
    header, *rows = printed(reversed_order())[:5]
    positions = [row.index(FULL) for row in rows]
    assert positions == sorted(positions, reverse=True)
    assert [row.split()[0] for row in rows] == ["four", "three", "two", "one"]
    # Each full cell is exactly below the label of its column.
    assert positions == [header.index(label) for label in ("quattro", "tre", "due", "uno")]


def test_long_sentences_have_vertical_labels_above_their_columns() -> None:
    labels = tuple(f"word{index:02}" for index in range(20))
    lines = printed(cross_map(np.eye(20)[None], plain(*labels), plain(*labels)), width=80)
    positions = [line.index(FULL) for line in lines[6:26]]
    assert ["".join(line[position] for line in lines[:6]) for position in positions] == list(labels)


def test_vertical_labels_keep_combining_marks_with_their_letters() -> None:
    lines = printed(cross_map(np.eye(20)[None], plain(*"x" * 20), plain(*["e\u0301te\u0301馆"] * 20)), width=64)
    assert [set(line.split()) for line in lines[:4]] == [{"e\u0301"}, {"t"}, {"e\u0301"}, {"馆"}]


def test_output_without_color_has_no_escape_codes() -> None:
    assert "\x1b" not in "".join(printed(reversed_order()))


def test_large_weights_color_the_background() -> None:
    lines = printed(reversed_order(), color=True)
    assert any("\x1b[38;2;" in line and ";48;2;" in line and FULL in line for line in lines)


def test_no_color_environment_variable_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="truecolor")
    console.print(heat_map(reversed_order()))
    assert "48;2;" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_shade_depends_on_the_weight() -> None:
    weights = np.array([[[0.01, 0.06, 0.2, 0.4, 0.9]]])
    row = printed(cross_map(weights, plain("x"), plain("aa", "bb", "cc", "dd", "ee")))[1]
    assert row == "x    ░░ ▒▒ ▓▓ ██"


def test_heads_are_averaged_unless_one_is_chosen() -> None:
    two = cross_map(np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), plain("x"), plain("aa", "bb"))
    assert printed(two)[1] == "x ▓▓ ▓▓"
    assert printed(two, head=1)[1] == "x    ██"
    with pytest.raises(SaccadeError, match="heads 0 to 1"):
        heat_map(two, head=2)


def test_columns_that_do_not_fit_are_cut_and_counted() -> None:
    labels = tuple(str(index) for index in range(50))
    lines = printed(cross_map(np.full((1, 1, 50), 0.02), plain("x"), plain(*labels)), width=40)
    assert "12 of 50 columns shown" in lines[-1]
    assert any(line.endswith("…") for line in lines)


@pytest.mark.parametrize("shape", [(1, 0, 0), (2, 0, 3), (2, 3, 0), (0, 2, 2)])
def test_an_empty_map_prints_a_message(shape: tuple[int, int, int]) -> None:
    axes = [plain(*("a" * size)) for size in shape[1:]]
    assert printed(cross_map(np.zeros(shape), *axes)) == ["there is no attention to show"]


def test_nan_weights_are_shown_as_question_marks() -> None:
    assert printed(cross_map(np.array([[[np.nan, 1.0]]]), plain("x"), plain("aa", "bb")))[1] == "x ?? ██"


def test_wide_and_combining_characters_keep_the_columns_aligned() -> None:
    columns = plain("图书馆", "e\u0301te\u0301", "नमस्ते", "سلام", "👩\u200d🏫")
    rows = plain("馆", "e\u0301", "ok", "م", "🏫")
    lines = printed(cross_map(np.eye(5)[None], rows, columns), width=60)
    assert cell_len(lines[1].split(FULL)[0]) == 3  # two cells for the widest row label and one blank
    assert cell_len(lines[2].split(FULL)[0]) == 3 + cell_len("图书馆") + 1


def test_labels_cannot_send_control_characters_to_the_terminal() -> None:
    hostile = plain("\x1b[2J\x1b]0;owned\x07", "a\nb", "\u202eevil", "\ud800")
    text = heat_map(cross_map(np.eye(4)[None], hostile, hostile)).plain
    assert not any(character in text for character in "\x1b\x07\u202e\ud800\r")
    assert "a b" in text


@given(
    st.lists(st.text(max_size=20), min_size=1, max_size=30),
    st.lists(st.text(max_size=20), min_size=1, max_size=4),
    st.integers(1, 120),
)
def test_no_line_is_wider_than_the_given_width(columns: list[str], rows: list[str], width: int) -> None:
    map_ = cross_map(np.full((1, len(rows), len(columns)), 0.5), plain(*rows), plain(*columns))
    assert all(cell_len(line) <= width for line in heat_map(map_, width=width).plain.split("\n"))
