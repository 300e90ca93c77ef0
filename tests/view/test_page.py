"""The offline page: one inert file, and in a browser a map that answers."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.view.maps import AttentionMaps, Axis, Map
from saccade.view.page import write_page

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><!--\u2028&amp;"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def rows_that_sum_to_one(shape: tuple[int, int, int], seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).random(shape)
    return (noise / noise.sum(axis=-1, keepdims=True)).astype(np.float32)


def example(extra: str = "lo") -> AttentionMaps:
    """Two layers of three heads over "Hallo Welt" and "hello world", one word of each in two pieces."""
    source = Axis(("Hal", extra, "Welt", "</s>"), (0, 0, 1, 2))
    target = Axis(("hello", "wor", "ld", "</s>"), (0, 1, 1, 2))
    maps = {}
    for layer in range(2):
        for name, rows, columns, kind in (
            (f"encoder.layers.{layer}.self", source, source, "encoder"),
            (f"decoder.layers.{layer}.self", target, target, "decoder"),
            (f"decoder.layers.{layer}.memory", target, source, "cross"),
        ):
            maps[name] = Map(rows_that_sum_to_one((3, len(rows), len(columns)), len(maps)), rows, columns, kind)
    return AttentionMaps("Hal" + extra + " Welt", "hello world", maps)


def embedded(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found
    return json.loads(found.group(1))


def test_weights_and_texts_survive_the_page(tmp_path: Path) -> None:
    maps = example(HOSTILE)
    data = embedded(maps.save(tmp_path / "page.html"))
    (sentence,) = data["sentences"]
    assert (sentence["source"], sentence["target"]) == (maps.source, maps.target)
    for level, expected in (("pieces", maps), ("words", maps.words())):
        assert [each["name"] for each in sentence["levels"][level]] == list(expected)
        for each in sentence["levels"][level]:
            original = expected[each["name"]]
            assert each["kind"] == original.kind
            assert tuple(each["rows"]["labels"]) == original.rows.labels
            assert tuple(each["columns"]["words"]) == original.columns.words
            stored = np.array(each["weights"]) / data["scale"]
            np.testing.assert_allclose(stored, original.weights, atol=0.5 / data["scale"] + 1e-9)


def test_the_page_asks_nothing_of_the_network(tmp_path: Path) -> None:
    text = example().save(tmp_path / "page.html").read_text("utf-8")
    assert list(tmp_path.iterdir()) == [tmp_path / "page.html"]
    assert not re.search(r"https?:|//[a-z]|\b(src|href)=|@import|url\(|<link|fetch\(|XMLHttp|import\(", text)


def test_only_our_own_script_and_style_may_act(tmp_path: Path) -> None:
    text = example().save(tmp_path / "page.html").read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert policy.group(1).startswith("default-src 'none';")
    assert "unsafe" not in policy.group(1)
    for tag in ("script", "style"):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy.group(1)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = write_page([example(HOSTILE)], tmp_path / "page.html", HOSTILE).read_text("utf-8")
    assert "<img" not in text
    assert "<!--" not in text
    assert text.count("</script>") == 2
    assert text.count("<script") == 2
    data = text.split('id="data">')[1].split("</script>")[0]
    assert not set(data) & set("<>&\u2028\u2029")


def test_texts_that_are_not_unicode_are_written_all_the_same(tmp_path: Path) -> None:
    path = write_page([example("\ud800")], tmp_path / "page.html", "\ud800 title")
    assert "? title" in path.read_text("utf-8")
    assert embedded(path)["sentences"][0]["source"] == "Hal\ud800 Welt"


def test_a_diverged_model_is_seen_not_hidden(tmp_path: Path) -> None:
    axis = Axis(("a", "b"), (0, 1))
    broken = Map(np.array([[[np.nan, np.inf], [0.25, 0.75]]], np.float32), axis, axis, "encoder")
    data = embedded(AttentionMaps("a b", "", {"encoder.layers.0.self": broken}).save(tmp_path / "page.html"))
    (level,) = data["sentences"][0]["levels"].values()  # no word is split, so one level is enough
    assert level[0]["weights"] == [[[None, None], [2500, 7500]]]


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "page.html"
    assert example().save(str(path)) == path
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("disk is gone")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk is gone"):
        example("other").save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_script_stays_short() -> None:
    script = Path(__file__).parents[2] / "src/saccade/view/page.js"
    assert len(script.read_text("utf-8").splitlines()) < 350


# ---- In a browser ----


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    programs = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, programs)), None)
    if program is None:
        pytest.skip("no chromium here to open the page with")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield running
        running.close()


class Visit:
    """A page that is open, with everything it complained about and asked for."""

    def __init__(self, browser: Any, path: Path, fragment: str = "") -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri() + fragment)

    def numbers(self) -> np.ndarray:
        rows = self.page.locator("#map tbody tr").all()
        return np.array([[float(cell) for cell in row.locator("td").all_text_contents()] for row in rows])

    def said(self) -> str:
        return self.page.locator("#readout").inner_text()

    def pick(self, group: str, title: str) -> None:
        self.page.locator(f"#{group} label").get_by_text(title, exact=True).click()

    def lit(self) -> list[str]:
        return self.page.locator(".on").all_text_contents()

    def close(self) -> None:
        assert self.complaints == []
        assert len(self.requests) == 1
        self.page.close()


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Visit]:
    opened = Visit(browser, write_page([example(), example(HOSTILE)], tmp_path / "page.html", "Attention"))
    yield opened
    opened.close()


def test_it_opens_on_words_of_cross_attention(visit: Visit) -> None:
    expected = example().words()["decoder.layers.1.memory"]
    assert visit.page.locator("#map thead th").all_text_contents() == list(expected.columns.labels)
    assert visit.page.locator("#map tbody th").all_text_contents() == list(expected.rows.labels)
    np.testing.assert_allclose(visit.numbers(), expected.weights.mean(axis=0), atol=0.006)


def test_pickers_change_the_map(visit: Visit) -> None:
    maps = example()
    visit.pick("level", "Pieces")
    visit.pick("layer", "0")
    visit.pick("head", "Maximum")
    np.testing.assert_allclose(visit.numbers(), maps["decoder.layers.0.memory"].weights.max(axis=0), atol=0.006)
    visit.pick("head", "2")
    visit.pick("kind", "Encoder")
    np.testing.assert_allclose(visit.numbers(), maps["encoder.layers.0.self"].weights[2], atol=0.006)
    visit.page.keyboard.press("ArrowRight")  # the arrow keys walk through a picker too
    np.testing.assert_allclose(visit.numbers(), maps["decoder.layers.0.self"].weights[2], atol=0.006)
    assert visit.page.locator("#name").inner_text() == "decoder.layers.0.self"


def test_pointing_tells_the_weight_and_links_both_words(visit: Visit) -> None:
    weights = example().words()["decoder.layers.1.memory"].weights.mean(axis=0)
    visit.page.hover("td[data-row='1'][data-column='0']")
    assert visit.said().split() == ["world", "looks", "at", "Hallo", f"{weights[1, 0]:.3f}"]
    # In the sentences, on both axes, and the cell itself.
    assert sorted(visit.lit()) == sorted(["Hallo", "Hallo", "world", "world", f"{weights[1, 0]:.2f}"])
    visit.page.hover("h1")
    assert visit.lit() == []
    visit.page.hover("#rows-line .piece >> nth=1")
    assert visit.said().startswith("world looks most at")
    visit.page.hover("#columns-line .piece >> nth=0")
    assert visit.said().startswith("Hallo is looked at most by")


def test_the_keyboard_walks_through_the_map(visit: Visit) -> None:
    visit.page.focus("td[data-row='0'][data-column='0']")
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("End")
    assert visit.said().startswith("world looks at </s>")
    assert visit.page.locator("#readout").get_attribute("aria-live") == "polite"
    assert visit.page.locator("#map td[tabindex='0']").count() == 1
    visit.page.hover("td[data-row='0'][data-column='1']")
    assert visit.said().startswith("hello looks at Welt")
    visit.page.hover("h1")  # the mouse passing by does not take the keyboard's place away
    assert visit.said().startswith("world looks at </s>")


def test_words_and_pieces(visit: Visit) -> None:
    maps = example()
    assert visit.page.locator("#columns-line").inner_text().split() == ["Hallo", "Welt", "</s>"]
    visit.pick("level", "Pieces")
    expected = maps["decoder.layers.1.memory"]
    assert visit.page.locator("#map thead th").all_text_contents() == ["Hal", "lo", "Welt", "</s>"]
    np.testing.assert_allclose(visit.numbers(), expected.weights.mean(axis=0), atol=0.006)
    visit.pick("level", "Words")
    assert visit.page.locator("#map thead th").count() == 3


def test_numbers_are_painted_when_asked_for(visit: Visit) -> None:
    cell = visit.page.locator("#map tbody td").first
    assert cell.evaluate("cell => getComputedStyle(cell).color") == "rgba(0, 0, 0, 0)"
    visit.page.locator(".switch").click()
    assert cell.evaluate("cell => getComputedStyle(cell).color") != "rgba(0, 0, 0, 0)"


def test_all_heads_at_once(visit: Visit) -> None:
    assert visit.page.locator("#multiples button").count() == 6
    visit.page.click("#multiples button[aria-label='layer 0, head 1']")
    expected = example().words()["decoder.layers.0.memory"].weights[1]
    np.testing.assert_allclose(visit.numbers(), expected, atol=0.006)
    assert visit.page.locator("#head input:checked").get_attribute("value") == "1"
    assert visit.page.locator("#multiples button[aria-pressed='true']").count() == 1


def test_the_address_holds_the_choice(visit: Visit) -> None:
    visit.pick("kind", "Decoder")
    visit.pick("head", "1")
    numbers, address = visit.numbers(), visit.page.url
    visit.page.goto("about:blank")
    visit.page.goto(address)
    np.testing.assert_array_equal(visit.numbers(), numbers)
    visit.requests[:] = visit.requests[:1]  # opening it again was our own doing


@pytest.mark.parametrize(
    "fragment", ["#head=99&map=nowhere&level=letters&sentence=-7", "#head=constructor&level=__proto__"]
)
def test_a_mistaken_address_falls_back(browser: Any, tmp_path: Path, fragment: str) -> None:
    opened = Visit(browser, example().save(tmp_path / "page.html"), fragment)
    assert opened.numbers().shape == (3, 3)
    opened.close()


def test_hostile_sentences_are_shown_literally(visit: Visit) -> None:
    visit.page.select_option("#sentence", "1")
    label = "Hal" + HOSTILE
    assert visit.page.locator("#map thead th").all_text_contents()[0] == label
    visit.page.hover("td[data-row='0'][data-column='0']")
    assert "<img src=x" in visit.said()
    assert visit.page.locator("img").count() == 0
    assert visit.page.title() == "Attention"


# In one call, because the page may draw itself anew between two.
BRIGHTNESSES = """() => [...document.querySelectorAll("#map tbody td")].map((cell) =>
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


@pytest.mark.parametrize("maps", [[], [AttentionMaps("a", "b", {})]])
def test_nothing_to_show_is_said(browser: Any, tmp_path: Path, maps: list[AttentionMaps]) -> None:
    opened = Visit(browser, write_page(maps, tmp_path / "page.html", "Empty"))
    assert "no attention to show" in opened.page.locator("body").inner_text()
    opened.close()


def test_empty_sides_and_missing_numbers_do_not_break_it(browser: Any, tmp_path: Path) -> None:
    none, two = Axis((), ()), Axis(("a", " "), (0, 1))
    maps = {
        "encoder.layers.0.self": Map(np.zeros((2, 0, 0), np.float32), none, none, "encoder"),
        "decoder.attention": Map(np.full((1, 2, 2), np.nan, np.float32), two, two, "cross"),
    }
    opened = Visit(browser, AttentionMaps("", "a", maps).save(tmp_path / "page.html"))
    opened.page.hover("td[data-row='0'][data-column='1']")
    assert opened.said().split() == ["a", "looks", "at", "␣", "not", "a", "number"]
    opened.pick("kind", "Encoder")
    assert opened.page.locator("#map tbody tr").count() == 0
    opened.close()
