"""The attention viewer in a browser: controls, pointer, keyboard, readout and address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.view.maps import AttentionMap, AttentionMaps, Axis
from saccade.view.page import write_page
from view.browser import BrowserPage
from view.examples import HOSTILE, example, random_weights


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[BrowserPage]:
    opened = BrowserPage(
        browser, write_page([example(), example(HOSTILE)], tmp_path / "page.html", "Attention").as_uri()
    )
    yield opened
    opened.close()


def test_initial_view_is_the_last_cross_attention_by_words(visit: BrowserPage) -> None:
    expected = example().words()["decoder.layers.1.cross"]
    assert visit.page.locator(".heat-map thead th").all_text_contents() == list(expected.columns.labels)
    assert visit.page.locator(".heat-map tbody th").all_text_contents() == list(expected.rows.labels)
    np.testing.assert_allclose(visit.weights(), expected.weights.mean(axis=0), atol=0.006)


def test_controls_select_the_map(visit: BrowserPage) -> None:
    maps = example()
    visit.choose("Text as", "Pieces")
    visit.choose("Layer", "0")
    visit.choose("Head", "Maximum")
    np.testing.assert_allclose(visit.weights(), maps["decoder.layers.0.cross"].weights.max(axis=0), atol=0.006)
    visit.choose("Head", "2")
    visit.choose("Attention", "Encoder")
    np.testing.assert_allclose(visit.weights(), maps["encoder.layers.0.self"].weights[2], atol=0.006)
    visit.page.keyboard.press("ArrowRight")  # the arrow keys also move through a group of radio buttons
    np.testing.assert_allclose(visit.weights(), maps["decoder.layers.0.self"].weights[2], atol=0.006)
    assert visit.page.locator(".name").inner_text() == "decoder.layers.0.self"


def test_pointing_at_a_cell_shows_its_weight_and_highlights_both_words(visit: BrowserPage) -> None:
    weights = example().words()["decoder.layers.1.cross"].weights.mean(axis=0)
    visit.page.hover("td[data-row='1'][data-column='0']")
    assert visit.readout().split() == ["world", "attends", "to", "Hallo", f"{weights[1, 0]:.3f}"]
    # Highlighted are the words in both sentences, both headers, and the cell itself.
    assert sorted(visit.highlighted()) == sorted(["Hallo", "Hallo", "world", "world", f"{weights[1, 0]:.2f}"])
    visit.page.hover("h1")
    assert visit.highlighted() == []
    visit.page.hover(".line >> nth=1 >> .piece >> nth=1")
    assert visit.readout().startswith("world attends most to")
    visit.page.hover(".line >> nth=0 >> .piece >> nth=0")
    assert visit.readout().startswith("Hallo is attended to most by")


def test_arrow_keys_move_through_the_cells(visit: BrowserPage) -> None:
    visit.page.focus("td[data-row='0'][data-column='0']")
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("End")
    assert visit.readout().startswith("world attends to </s>")
    assert visit.page.locator(".readout").get_attribute("aria-live") == "polite"
    assert visit.page.locator(".heat-map td[tabindex='0']").count() == 1
    visit.page.hover("td[data-row='0'][data-column='1']")
    assert visit.readout().startswith("hello attends to Welt")
    visit.page.hover("h1")  # when the pointer leaves, the focused cell is highlighted again
    assert visit.readout().startswith("world attends to </s>")


def test_text_is_shown_as_words_or_pieces(visit: BrowserPage) -> None:
    maps = example()
    assert visit.page.locator(".line").first.inner_text().split() == ["Hallo", "Welt", "</s>"]
    visit.choose("Text as", "Pieces")
    expected = maps["decoder.layers.1.cross"]
    assert visit.page.locator(".heat-map thead th").all_text_contents() == ["Hal", "lo", "Welt", "</s>"]
    np.testing.assert_allclose(visit.weights(), expected.weights.mean(axis=0), atol=0.006)
    visit.choose("Text as", "Words")
    assert visit.page.locator(".heat-map thead th").count() == 3


def test_numbers_are_visible_only_when_switched_on(visit: BrowserPage) -> None:
    cell = visit.page.locator(".heat-map tbody td").first
    assert cell.evaluate("cell => getComputedStyle(cell).color") == "rgba(0, 0, 0, 0)"
    visit.page.locator(".toggle").click()
    assert cell.evaluate("cell => getComputedStyle(cell).color") != "rgba(0, 0, 0, 0)"


def test_a_thumbnail_selects_its_layer_and_head(visit: BrowserPage) -> None:
    assert visit.page.locator(".head-grid button").count() == 6
    visit.page.click(".head-grid button[aria-label='layer 0, head 1']")
    expected = example().words()["decoder.layers.0.cross"].weights[1]
    np.testing.assert_allclose(visit.weights(), expected, atol=0.006)
    assert visit.page.locator("fieldset:has-text('Average') input:checked").get_attribute("value") == "1"
    assert visit.page.locator(".head-grid button[aria-pressed='true']").count() == 1


def test_the_address_stores_the_selection(visit: BrowserPage) -> None:
    assert "#" not in visit.page.url  # until something is selected
    visit.page.select_option(".sentences select", "1")
    visit.choose("Attention", "Decoder")
    visit.choose("Layer", "0")
    visit.choose("Head", "1")
    visit.choose("Text as", "Pieces")
    visit.page.locator(".toggle").click()
    visit.choose("Show as", "Lines")
    weights, address = visit.weights(), visit.page.url
    visit.page.goto("about:blank")
    visit.page.goto(address)
    np.testing.assert_array_equal(visit.weights(), weights)
    np.testing.assert_allclose(weights, example(HOSTILE)["decoder.layers.0.self"].weights[1], atol=0.006)
    selected = visit.page.locator(".picker label:has(:checked)").all_text_contents()
    assert selected == ["Lines", "Decoder", "0", "1", "Pieces"]
    assert visit.page.locator(".sentences select").input_value() == "1"
    visit.choose("Show as", "Heat map")
    assert visit.page.locator(".toggle input").is_checked()
    visit.page.evaluate("() => { location.hash = 'head=max' }")  # another link to the same page
    visit.page.locator(".picker label:has(:checked)", has_text="Maximum").wait_for()
    visit.requests[:] = visit.requests[:1]  # this test itself opened the page a second time


@pytest.mark.parametrize(
    "fragment", ["#head=99&map=nowhere&level=letters&sentence=-7&view=toString", "#head=constructor&level=__proto__"]
)
def test_invalid_values_in_the_address_fall_back_to_defaults(browser: Any, tmp_path: Path, fragment: str) -> None:
    opened = BrowserPage(browser, example().save(tmp_path / "page.html").as_uri() + fragment)
    assert opened.weights().shape == (3, 3)
    opened.close()


def test_markup_in_sentences_is_shown_as_text(visit: BrowserPage) -> None:
    visit.page.select_option(".sentences select", "1")
    label = "Hal" + HOSTILE
    assert visit.page.locator(".heat-map thead th").all_text_contents()[0] == label
    visit.page.hover("td[data-row='0'][data-column='0']")
    assert "<img src=x" in visit.readout()
    assert visit.page.locator("img").count() == 0
    assert visit.page.title() == "Attention"


# Computed in one call, because the page may redraw between two calls.
BRIGHTNESSES = """() => [...document.querySelectorAll(".heat-map tbody td")].map((cell) =>
    getComputedStyle(cell).backgroundColor.match(/\\d+/g).reduce((sum, part) => sum + Number(part), 0))"""


def test_colors_are_ordered_by_weight_in_light_and_dark_mode(visit: BrowserPage) -> None:
    order = np.argsort(visit.weights().ravel())
    light = visit.page.evaluate(BRIGHTNESSES)
    assert light[order[0]] > light[order[-1]]
    visit.page.emulate_media(color_scheme="dark")
    dark = light
    for _ in range(100):  # the event arrives later; the page's policy forbids `wait_for_function`
        if dark != light:
            break
        visit.page.wait_for_timeout(20)
        dark = visit.page.evaluate(BRIGHTNESSES)
    assert dark[order[0]] < dark[order[-1]]


def test_single_attention_hides_the_selectors_and_each_pass_of_a_layer_can_be_selected(
    browser: Any, tmp_path: Path
) -> None:
    axis = Axis(("a", "b"), (0, 1))
    one = AttentionMap(random_weights((1, 2, 2), 0), axis, axis, "cross")
    opened = BrowserPage(
        browser, AttentionMaps("a b", "a b", {"decoder.cross": one}).save(tmp_path / "page.html").as_uri()
    )
    np.testing.assert_allclose(opened.weights(), one.weights[0], atol=0.006)
    assert opened.page.locator(".picker:visible legend").all_text_contents() == ["Show as"]
    assert not opened.page.locator(".head-grid").is_visible()
    opened.close()
    passes = {f"decoder.layers.0.cross{suffix}": one for suffix in ("", "@1", "@2")}
    opened = BrowserPage(browser, AttentionMaps("a b", "a b", passes).save(tmp_path / "page.html").as_uri())
    assert opened.page.get_by_role("group", name="Layer").locator("label").all_text_contents() == ["0", "0@1", "0@2"]
    opened.page.click(".head-grid button[aria-label='layer 0@1, head 0']")
    assert opened.page.locator(".name").inner_text() == "decoder.layers.0.cross@1"
    assert opened.page.locator(".head-grid button[aria-pressed='true']").count() == 1
    opened.close()


@pytest.mark.parametrize("maps", [[], [AttentionMaps("a", "b", {})]])
def test_a_message_is_shown_if_there_is_no_attention(browser: Any, tmp_path: Path, maps: list[AttentionMaps]) -> None:
    opened = BrowserPage(browser, write_page(maps, tmp_path / "page.html", "Empty").as_uri())
    assert "no attention to show" in opened.page.locator("body").inner_text()
    opened.close()


def test_empty_axes_give_an_empty_table_and_nan_weights_are_named(browser: Any, tmp_path: Path) -> None:
    none, two = Axis((), ()), Axis(("a", " "), (0, 1))
    maps = {
        "encoder.layers.0.self": AttentionMap(np.zeros((2, 0, 0), np.float32), none, none, "encoder"),
        "decoder.attention": AttentionMap(np.full((1, 2, 2), np.nan, np.float32), two, two, "cross"),
    }
    opened = BrowserPage(browser, AttentionMaps("", "a", maps).save(tmp_path / "page.html").as_uri())
    opened.page.hover("td[data-row='0'][data-column='1']")
    assert opened.readout().split() == ["a", "attends", "to", "␣", "not", "a", "number"]
    opened.choose("Attention", "Encoder")
    assert opened.page.locator(".heat-map tbody tr").count() == 0
    opened.close()
