"""The viewer in a browser: it answers to the mouse and to the keyboard, and says what the numbers are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.view.maps import AttentionMap, AttentionMaps, Axis
from saccade.view.page import write_page
from view.browser import Visit
from view.examples import HOSTILE, example, rows_that_sum_to_one


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Visit]:
    opened = Visit(browser, write_page([example(), example(HOSTILE)], tmp_path / "page.html", "Attention").as_uri())
    yield opened
    opened.close()


def test_it_opens_on_words_of_cross_attention(visit: Visit) -> None:
    expected = example().words()["decoder.layers.1.cross"]
    assert visit.page.locator(".heat-map thead th").all_text_contents() == list(expected.columns.labels)
    assert visit.page.locator(".heat-map tbody th").all_text_contents() == list(expected.rows.labels)
    np.testing.assert_allclose(visit.numbers(), expected.weights.mean(axis=0), atol=0.006)


def test_pickers_change_the_map(visit: Visit) -> None:
    maps = example()
    visit.normalizer("Text as", "Pieces")
    visit.normalizer("Layer", "0")
    visit.normalizer("Head", "Maximum")
    np.testing.assert_allclose(visit.numbers(), maps["decoder.layers.0.cross"].weights.max(axis=0), atol=0.006)
    visit.normalizer("Head", "2")
    visit.normalizer("Attention", "Encoder")
    np.testing.assert_allclose(visit.numbers(), maps["encoder.layers.0.self"].weights[2], atol=0.006)
    visit.page.keyboard.press("ArrowRight")  # the arrow keys walk through a picker too
    np.testing.assert_allclose(visit.numbers(), maps["decoder.layers.0.self"].weights[2], atol=0.006)
    assert visit.page.locator(".name").inner_text() == "decoder.layers.0.self"


def test_pointing_tells_the_weight_and_links_both_words(visit: Visit) -> None:
    weights = example().words()["decoder.layers.1.cross"].weights.mean(axis=0)
    visit.page.hover("td[data-row='1'][data-column='0']")
    assert visit.said().split() == ["world", "looks", "at", "Hallo", f"{weights[1, 0]:.3f}"]
    # In the sentences, on both axes, and the cell itself.
    assert sorted(visit.lit()) == sorted(["Hallo", "Hallo", "world", "world", f"{weights[1, 0]:.2f}"])
    visit.page.hover("h1")
    assert visit.lit() == []
    visit.page.hover(".line >> nth=1 >> .piece >> nth=1")
    assert visit.said().startswith("world looks most at")
    visit.page.hover(".line >> nth=0 >> .piece >> nth=0")
    assert visit.said().startswith("Hallo is looked at most by")


def test_the_keyboard_walks_through_the_map(visit: Visit) -> None:
    visit.page.focus("td[data-row='0'][data-column='0']")
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("End")
    assert visit.said().startswith("world looks at </s>")
    assert visit.page.locator(".readout").get_attribute("aria-live") == "polite"
    assert visit.page.locator(".heat-map td[tabindex='0']").count() == 1
    visit.page.hover("td[data-row='0'][data-column='1']")
    assert visit.said().startswith("hello looks at Welt")
    visit.page.hover("h1")  # the mouse passing by does not take the keyboard's place away
    assert visit.said().startswith("world looks at </s>")


def test_words_and_pieces(visit: Visit) -> None:
    maps = example()
    assert visit.page.locator(".line").first.inner_text().split() == ["Hallo", "Welt", "</s>"]
    visit.normalizer("Text as", "Pieces")
    expected = maps["decoder.layers.1.cross"]
    assert visit.page.locator(".heat-map thead th").all_text_contents() == ["Hal", "lo", "Welt", "</s>"]
    np.testing.assert_allclose(visit.numbers(), expected.weights.mean(axis=0), atol=0.006)
    visit.normalizer("Text as", "Words")
    assert visit.page.locator(".heat-map thead th").count() == 3


def test_numbers_are_painted_when_asked_for(visit: Visit) -> None:
    cell = visit.page.locator(".heat-map tbody td").first
    assert cell.evaluate("cell => getComputedStyle(cell).color") == "rgba(0, 0, 0, 0)"
    visit.page.locator(".toggle").click()
    assert cell.evaluate("cell => getComputedStyle(cell).color") != "rgba(0, 0, 0, 0)"


def test_all_heads_at_once(visit: Visit) -> None:
    assert visit.page.locator(".multiples button").count() == 6
    visit.page.click(".multiples button[aria-label='layer 0, head 1']")
    expected = example().words()["decoder.layers.0.cross"].weights[1]
    np.testing.assert_allclose(visit.numbers(), expected, atol=0.006)
    assert visit.page.locator("fieldset:has-text('Average') input:checked").get_attribute("value") == "1"
    assert visit.page.locator(".multiples button[aria-pressed='true']").count() == 1


def test_the_address_holds_the_choice(visit: Visit) -> None:
    assert "#" not in visit.page.url  # until something is chosen
    visit.page.select_option(".sentences select", "1")
    visit.normalizer("Attention", "Decoder")
    visit.normalizer("Layer", "0")
    visit.normalizer("Head", "1")
    visit.normalizer("Text as", "Pieces")
    visit.page.locator(".toggle").click()
    visit.normalizer("Show as", "Lines")
    numbers, address = visit.numbers(), visit.page.url
    visit.page.goto("about:blank")
    visit.page.goto(address)
    np.testing.assert_array_equal(visit.numbers(), numbers)
    np.testing.assert_allclose(numbers, example(HOSTILE)["decoder.layers.0.self"].weights[1], atol=0.006)
    chosen = visit.page.locator(".picker label:has(:checked)").all_text_contents()
    assert chosen == ["Lines", "Decoder", "0", "1", "Pieces"]
    assert visit.page.locator(".sentences select").input_value() == "1"
    visit.normalizer("Show as", "Heat map")
    assert visit.page.locator(".toggle input").is_checked()
    visit.page.evaluate("() => { location.hash = 'head=max' }")  # another link to the same page
    visit.page.locator(".picker label:has(:checked)", has_text="Maximum").wait_for()
    visit.requests[:] = visit.requests[:1]  # opening it again was our own doing


@pytest.mark.parametrize(
    "fragment", ["#head=99&map=nowhere&level=letters&sentence=-7&view=toString", "#head=constructor&level=__proto__"]
)
def test_a_mistaken_address_falls_back(browser: Any, tmp_path: Path, fragment: str) -> None:
    opened = Visit(browser, example().save(tmp_path / "page.html").as_uri() + fragment)
    assert opened.numbers().shape == (3, 3)
    opened.close()


def test_hostile_sentences_are_shown_literally(visit: Visit) -> None:
    visit.page.select_option(".sentences select", "1")
    label = "Hal" + HOSTILE
    assert visit.page.locator(".heat-map thead th").all_text_contents()[0] == label
    visit.page.hover("td[data-row='0'][data-column='0']")
    assert "<img src=x" in visit.said()
    assert visit.page.locator("img").count() == 0
    assert visit.page.title() == "Attention"


# In one call, because the page may draw itself anew between two.
BRIGHTNESSES = """() => [...document.querySelectorAll(".heat-map tbody td")].map((cell) =>
    getComputedStyle(cell).backgroundColor.match(/\\d+/g).reduce((sum, part) => sum + Number(part), 0))"""


def test_colours_follow_the_weight_in_light_and_dark(visit: Visit) -> None:
    order = np.argsort(visit.numbers().ravel())
    light = visit.page.evaluate(BRIGHTNESSES)
    assert light[order[0]] > light[order[-1]]
    visit.page.emulate_media(color_scheme="dark")
    dark = light
    for _ in range(100):  # the page hears of it a moment later, and its own policy forbids waiting inside it
        if dark != light:
            break
        visit.page.wait_for_timeout(20)
        dark = visit.page.evaluate(BRIGHTNESSES)
    assert dark[order[0]] < dark[order[-1]]


def test_a_recurrent_run_and_layers_visited_again(browser: Any, tmp_path: Path) -> None:
    axis = Axis(("a", "b"), (0, 1))
    one = AttentionMap(rows_that_sum_to_one((1, 2, 2), 0), axis, axis, "cross")
    opened = Visit(browser, AttentionMaps("a b", "a b", {"decoder.cross": one}).save(tmp_path / "page.html").as_uri())
    np.testing.assert_allclose(opened.numbers(), one.weights[0], atol=0.006)
    assert opened.page.locator(".picker:visible legend").all_text_contents() == ["Show as"]
    assert not opened.page.locator(".multiples").is_visible()
    opened.close()
    visits = {f"decoder.layers.0.cross{visit}": one for visit in ("", "@1", "@2")}
    opened = Visit(browser, AttentionMaps("a b", "a b", visits).save(tmp_path / "page.html").as_uri())
    assert opened.page.get_by_role("group", name="Layer").locator("label").all_text_contents() == ["0", "0@1", "0@2"]
    opened.page.click(".multiples button[aria-label='layer 0@1, head 0']")
    assert opened.page.locator(".name").inner_text() == "decoder.layers.0.cross@1"
    assert opened.page.locator(".multiples button[aria-pressed='true']").count() == 1
    opened.close()


@pytest.mark.parametrize("maps", [[], [AttentionMaps("a", "b", {})]])
def test_nothing_to_show_is_said(browser: Any, tmp_path: Path, maps: list[AttentionMaps]) -> None:
    opened = Visit(browser, write_page(maps, tmp_path / "page.html", "Empty").as_uri())
    assert "no attention to show" in opened.page.locator("body").inner_text()
    opened.close()


def test_empty_sides_and_missing_numbers_do_not_break_it(browser: Any, tmp_path: Path) -> None:
    none, two = Axis((), ()), Axis(("a", " "), (0, 1))
    maps = {
        "encoder.layers.0.self": AttentionMap(np.zeros((2, 0, 0), np.float32), none, none, "encoder"),
        "decoder.attention": AttentionMap(np.full((1, 2, 2), np.nan, np.float32), two, two, "cross"),
    }
    opened = Visit(browser, AttentionMaps("", "a", maps).save(tmp_path / "page.html").as_uri())
    opened.page.hover("td[data-row='0'][data-column='1']")
    assert opened.said().split() == ["a", "looks", "at", "␣", "not", "a", "number"]
    opened.normalizer("Attention", "Encoder")
    assert opened.page.locator(".heat-map tbody tr").count() == 0
    opened.close()
