"""The line view in a browser: source words on the left, target words on the right, lines as strong as their weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.view.maps import AttentionMap, AttentionMaps, Axis
from saccade.view.page import write_page
from view.browser import Visit
from view.examples import HOSTILE, example

LINES = """() => [...document.querySelectorAll(".line-view path")].map((path) => ({
  row: Number(path.dataset.row), column: Number(path.dataset.column), on: path.classList.contains("on"),
  width: parseFloat(getComputedStyle(path).strokeWidth), opacity: Number(getComputedStyle(path).strokeOpacity) }))"""

# Where a line begins and ends on the screen, and the middles of its two words.
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
def visit(browser: Any, tmp_path: Path) -> Iterator[Visit]:
    path = write_page([example(), example(HOSTILE)], tmp_path / "page.html", "Attention")
    opened = Visit(browser, path.as_uri() + "#view=lines")
    yield opened
    opened.close()


def test_words_stand_on_both_sides_and_lines_join_them(visit: Visit) -> None:
    assert visit.page.locator(".line-view .columns li").all_text_contents() == ["Hallo", "Welt", "</s>"]
    assert visit.page.locator(".line-view .rows li").all_text_contents() == ["hello", "world", "</s>"]
    left = visit.page.locator(".line-view .columns").bounding_box()
    right = visit.page.locator(".line-view .rows").bounding_box()
    assert left["x"] + left["width"] < right["x"]
    ends = np.array(visit.page.evaluate(ENDS))
    assert len(ends) == 9
    np.testing.assert_allclose(ends[:, [0, 2]], ends[:, [1, 3]], atol=1)


def test_strength_is_the_weight(visit: Visit) -> None:
    weights = example().words()["decoder.layers.1.cross"].weights.mean(axis=0)
    lines = visit.page.evaluate(LINES)
    of_lines = np.array([weights[line["row"], line["column"]] for line in lines])
    assert (np.diff(of_lines) >= 0).all()  # strong ones are drawn last, on top
    np.testing.assert_allclose([line["width"] for line in lines], 0.5 + 5.5 * of_lines, atol=0.01)
    np.testing.assert_allclose([line["opacity"] for line in lines], of_lines**0.7, atol=0.01)
    visit.normalizer("Head", "2")
    chosen = example().words()["decoder.layers.1.cross"].weights[2]
    assert [line["width"] for line in visit.page.evaluate(LINES)] != [line["width"] for line in lines]
    strongest = visit.page.evaluate(LINES)[-1]
    assert (strongest["row"], strongest["column"]) == np.unravel_index(chosen.argmax(), chosen.shape)


def test_pointing_at_a_word_leaves_its_lines(visit: Visit) -> None:
    visit.page.hover(".line-view .rows li >> nth=1")
    assert visit.said().startswith("world looks most at")
    assert {line["row"] for line in visit.page.evaluate(LINES) if line["on"]} == {1}
    assert sum(line["on"] for line in visit.page.evaluate(LINES)) == 3
    visit.page.hover(".line-view .columns li >> nth=0")
    assert visit.said().startswith("Hallo is looked at most by")
    assert {line["column"] for line in visit.page.evaluate(LINES) if line["on"]} == {0}
    assert visit.page.locator(".line-view li[aria-selected='true']").all_text_contents() == ["Hallo"]
    visit.page.hover("h1")
    assert all(line["on"] for line in visit.page.evaluate(LINES))
    assert visit.page.locator(".line-view svg.pointed").count() == 0


def test_the_keyboard_walks_through_both_sentences(visit: Visit) -> None:
    visit.page.focus(".line-view .columns li")
    visit.page.keyboard.press("ArrowDown")
    assert visit.said().startswith("Welt is looked at most by")
    visit.page.keyboard.press("ArrowRight")
    assert visit.said().startswith("world looks most at")
    visit.page.keyboard.press("End")
    assert visit.said().startswith("</s> looks most at")
    visit.page.keyboard.press("Home")
    visit.page.keyboard.press("ArrowLeft")
    assert visit.said().startswith("Hallo is looked at most by")
    visit.page.keyboard.press("ArrowLeft")  # there is nothing further left
    assert visit.said().startswith("Hallo is looked at most by")
    assert visit.page.locator(".line-view [tabindex='0']").count() == 1


def test_a_screen_reader_has_the_numbers_as_a_table(visit: Visit) -> None:
    np.testing.assert_allclose(
        visit.numbers(), example().words()["decoder.layers.1.cross"].weights.mean(axis=0), atol=0.006
    )
    table = visit.page.get_by_role("table", name="decoder.layers.1.cross, rows look at columns")
    assert table.get_by_role("columnheader").all_text_contents() == ["Hallo", "Welt", "</s>"]
    assert table.get_by_role("rowheader").all_text_contents() == ["hello", "world", "</s>"]
    assert table.locator("..").bounding_box()["height"] <= 1  # heard, not seen


def test_hostile_words_are_shown_literally(visit: Visit) -> None:
    visit.page.select_option(".sentences select", "1")
    assert visit.page.locator(".line-view .columns li").all_text_contents()[0] == "Hal" + HOSTILE
    assert visit.page.locator("img").count() == 0
    assert visit.page.title() == "Attention"


def test_sides_of_any_length_and_missing_numbers(browser: Any, tmp_path: Path) -> None:
    none, one, three = Axis((), ()), Axis(("ja",), (0,)), Axis(("a", "b", "c"), (0, 1, 2))
    maps = {
        "encoder.layers.0.self": AttentionMap(np.zeros((1, 0, 0), np.float32), none, none, "encoder"),
        "decoder.layers.0.self": AttentionMap(np.full((1, 3, 3), np.nan, np.float32), three, three, "decoder"),
        "decoder.layers.0.cross": AttentionMap(np.ones((1, 3, 1), np.float32), three, one, "cross"),
    }
    path = AttentionMaps("ja", "a b c", maps).save(tmp_path / "page.html")
    opened = Visit(browser, path.as_uri() + "#view=lines")
    np.testing.assert_allclose(*np.array(opened.page.evaluate(ENDS)).T[:2], atol=1)
    opened.page.focus(".line-view .rows li >> nth=2")
    opened.page.keyboard.press("ArrowLeft")
    assert opened.said().startswith("ja is looked at most by")
    opened.normalizer("Attention", "Decoder")
    assert opened.page.locator(".line-view path.void").count() == 9
    opened.normalizer("Attention", "Encoder")
    assert opened.page.locator(".line-view li").count() == 0
    opened.close()
