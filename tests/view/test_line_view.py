"""The line view in a browser: keys on the left, queries on the right, and a line for each weight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.view.maps import AttentionMap, AttentionMaps, Axis
from saccade.view.page import write_page
from view.browser import BrowserPage
from view.examples import HOSTILE, example

LINES = """() => [...document.querySelectorAll(".line-view path")].map((path) => ({
  row: Number(path.dataset.row), column: Number(path.dataset.column), on: path.classList.contains("on"),
  width: parseFloat(getComputedStyle(path).strokeWidth), opacity: Number(getComputedStyle(path).strokeOpacity) }))"""

# The vertical position of both ends of each line, each followed by the middle of the word it belongs to.
ENDS = """() => [...document.querySelectorAll(".line-view path")].map((path) => {
  const onScreen = (at) => path.getPointAtLength(at).matrixTransform(path.getScreenCTM());
  const middle = (side, index) => {
    const box = document.querySelectorAll(`.line-view .${side} li`)[index].getBoundingClientRect();
    return box.top + box.height / 2;
  };
  return [onScreen(0).y, middle("columns", path.dataset.column),
    onScreen(path.getTotalLength()).y, middle("rows", path.dataset.row)];
})"""


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[BrowserPage]:
    path = write_page([example(), example(HOSTILE)], tmp_path / "page.html", "Attention")
    opened = BrowserPage(browser, path.as_uri() + "#view=lines")
    yield opened
    opened.close()


def test_lines_connect_the_words_of_both_sides(visit: BrowserPage) -> None:
    assert visit.page.locator(".line-view .columns li").all_text_contents() == ["Hallo", "Welt", "</s>"]
    assert visit.page.locator(".line-view .rows li").all_text_contents() == ["hello", "world", "</s>"]
    left = visit.page.locator(".line-view .columns").bounding_box()
    right = visit.page.locator(".line-view .rows").bounding_box()
    assert left["x"] + left["width"] < right["x"]
    ends = np.array(visit.page.evaluate(ENDS))
    assert len(ends) == 9
    np.testing.assert_allclose(ends[:, [0, 2]], ends[:, [1, 3]], atol=1)


def test_width_and_opacity_of_a_line_depend_on_its_weight(visit: BrowserPage) -> None:
    weights = example().words()["decoder.layers.1.cross"].weights.mean(axis=0)
    lines = visit.page.evaluate(LINES)
    line_weights = np.array([weights[line["row"], line["column"]] for line in lines])
    assert (np.diff(line_weights) >= 0).all()  # the largest are drawn last, on top
    np.testing.assert_allclose([line["width"] for line in lines], 0.5 + 5.5 * line_weights, atol=0.01)
    np.testing.assert_allclose([line["opacity"] for line in lines], line_weights**0.7, atol=0.01)
    visit.choose("Head", "2")
    chosen = example().words()["decoder.layers.1.cross"].weights[2]
    assert [line["width"] for line in visit.page.evaluate(LINES)] != [line["width"] for line in lines]
    strongest = visit.page.evaluate(LINES)[-1]
    assert (strongest["row"], strongest["column"]) == np.unravel_index(chosen.argmax(), chosen.shape)


def test_pointing_at_a_word_highlights_its_lines(visit: BrowserPage) -> None:
    visit.page.hover(".line-view .rows li >> nth=1")
    assert visit.readout().startswith("world attends most to")
    assert {line["row"] for line in visit.page.evaluate(LINES) if line["on"]} == {1}
    assert sum(line["on"] for line in visit.page.evaluate(LINES)) == 3
    visit.page.hover(".line-view .columns li >> nth=0")
    assert visit.readout().startswith("Hallo is attended to most by")
    assert {line["column"] for line in visit.page.evaluate(LINES) if line["on"]} == {0}
    assert visit.page.locator(".line-view li[aria-selected='true']").all_text_contents() == ["Hallo"]
    visit.page.hover("h1")
    assert all(line["on"] for line in visit.page.evaluate(LINES))
    assert visit.page.locator(".line-view svg.pointed").count() == 0


def test_arrow_keys_move_through_both_sentences(visit: BrowserPage) -> None:
    visit.page.focus(".line-view .columns li")
    visit.page.keyboard.press("ArrowDown")
    assert visit.readout().startswith("Welt is attended to most by")
    visit.page.keyboard.press("ArrowRight")
    assert visit.readout().startswith("world attends most to")
    visit.page.keyboard.press("End")
    assert visit.readout().startswith("</s> attends most to")
    visit.page.keyboard.press("Home")
    visit.page.keyboard.press("ArrowLeft")
    assert visit.readout().startswith("Hallo is attended to most by")
    visit.page.keyboard.press("ArrowLeft")  # it is already on the left side
    assert visit.readout().startswith("Hallo is attended to most by")
    assert visit.page.locator(".line-view [tabindex='0']").count() == 1


def test_screen_readers_get_the_weights_as_a_table(visit: BrowserPage) -> None:
    np.testing.assert_allclose(
        visit.weights(), example().words()["decoder.layers.1.cross"].weights.mean(axis=0), atol=0.006
    )
    table = visit.page.get_by_role("table", name="decoder.layers.1.cross, rows are queries, columns are keys")
    assert table.get_by_role("columnheader").all_text_contents() == ["Hallo", "Welt", "</s>"]
    assert table.get_by_role("rowheader").all_text_contents() == ["hello", "world", "</s>"]
    assert table.locator("..").bounding_box()["height"] <= 1  # visible to screen readers only


def test_markup_in_words_is_shown_as_text(visit: BrowserPage) -> None:
    visit.page.select_option(".sentences select", "1")
    assert visit.page.locator(".line-view .columns li").all_text_contents()[0] == "Hal" + HOSTILE
    assert visit.page.locator("img").count() == 0
    assert visit.page.title() == "Attention"


def test_lines_connect_sentences_of_different_lengths_and_nan_weights_are_marked(browser: Any, tmp_path: Path) -> None:
    none, one, three = Axis((), ()), Axis(("ja",), (0,)), Axis(("a", "b", "c"), (0, 1, 2))
    maps = {
        "encoder.layers.0.self": AttentionMap(np.zeros((1, 0, 0), np.float32), none, none, "encoder"),
        "decoder.layers.0.self": AttentionMap(np.full((1, 3, 3), np.nan, np.float32), three, three, "decoder"),
        "decoder.layers.0.cross": AttentionMap(np.ones((1, 3, 1), np.float32), three, one, "cross"),
    }
    path = AttentionMaps("ja", "a b c", maps).save(tmp_path / "page.html")
    opened = BrowserPage(browser, path.as_uri() + "#view=lines")
    np.testing.assert_allclose(*np.array(opened.page.evaluate(ENDS)).T[:2], atol=1)
    opened.page.focus(".line-view .rows li >> nth=2")
    opened.page.keyboard.press("ArrowLeft")
    assert opened.readout().startswith("ja is attended to most by")
    opened.choose("Attention", "Decoder")
    assert opened.page.locator(".line-view path.nan").count() == 9
    opened.choose("Attention", "Encoder")
    assert opened.page.locator(".line-view li").count() == 0
    opened.close()
