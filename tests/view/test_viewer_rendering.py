"""Rendering of the viewer: accessibility, dark mode, small screens, long and right-to-left sentences, served pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from typing import Any

import numpy as np
import pytest

from saccade.view.maps import AttentionMap, AttentionMaps, Axis
from saccade.view.page import viewer_data, write_page
from view.browser import BrowserPage
from view.examples import example, random_weights

PHONE = {"width": 390, "height": 800}

# The number of pairs of elements that overlap by more than one pixel (less may be rounding).
OVERLAPS = """(selector) => {
  const boxes = [...document.querySelectorAll(selector)].map((element) => element.getBoundingClientRect());
  return boxes.flatMap((one, i) => boxes.slice(i + 1).filter((other) =>
    Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1)).length;
}"""
HORIZONTAL_OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def sentence_maps(source: str, target: str, heads: int = 2) -> AttentionMaps:
    axes = {}
    for side, text in (("source", source), ("target", target)):
        labels = (*text.split(), "</s>")
        axes[side] = Axis(labels, tuple(range(len(labels))))
    rows, columns = axes["target"], axes["source"]
    weights = random_weights((heads, len(rows), len(columns)), 1)
    return AttentionMaps(source, target, {"decoder.layers.0.cross": AttentionMap(weights, rows, columns, "cross")})


SENTENCES = [
    example(),
    sentence_maps(
        " ".join(f"Satzglied{index}" for index in range(50)), " ".join(f"phrase{index}" for index in range(40))
    ),
    sentence_maps("ذهب الولد إلى المدرسة .", "הילד הלך לבית הספר."),
    sentence_maps("👩\u200d🏫 e\u0301te\u0301 图书馆 नमस्ते", "Donaudampfschifffahrtsgesellschaftskapitän ja"),
    sentence_maps("ja", "yes", heads=1),
]
LONG, RIGHT_TO_LEFT, ODD, SHORT = range(1, 5)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(SENTENCES, tmp_path_factory.mktemp("page") / "page.html", "Attention").as_uri()


@pytest.fixture(scope="module")
def pages(browser: Any, address: str) -> Iterator[dict[str, BrowserPage]]:
    """The page in light and in dark mode, with its policy disabled so that axe can run."""
    opened = {
        scheme: BrowserPage(browser, address, color_scheme=scheme, bypass_csp=True) for scheme in ("light", "dark")
    }
    yield opened
    for visit in opened.values():
        visit.close()


@pytest.mark.parametrize(("scheme", "view"), [*product(("light", "dark"), ("Heat map", "Lines"))])
def test_page_has_no_serious_accessibility_violations(pages: dict[str, BrowserPage], scheme: str, view: str) -> None:
    visit = pages[scheme]
    visit.choose("Show as", view)
    assert visit.accessibility_violations() == []
    if view == "Heat map":
        visit.page.locator(".toggle").click()  # numbers on cells of every color
        assert visit.accessibility_violations() == []
        visit.page.locator(".toggle").click()


def test_scrolling_areas_have_no_serious_accessibility_violations(browser: Any, address: str) -> None:
    opened = BrowserPage(browser, f"{address}#sentence={LONG}", viewport={"width": 700, "height": 600}, bypass_csp=True)
    # An area that scrolls and contains nothing focusable must be focusable itself.
    assert opened.page.locator(".line").first.get_attribute("tabindex") == "0"
    assert opened.accessibility_violations() == []
    opened.choose("Show as", "Lines")
    assert opened.accessibility_violations() == []
    opened.close()


def test_axe_detects_a_planted_violation(pages: dict[str, BrowserPage]) -> None:
    visit = pages["light"]
    visit.page.evaluate("() => { document.querySelector('.readout').style.color = '#ddd' }")
    assert any(violation.startswith("color-contrast") for violation in visit.accessibility_violations())
    visit.page.evaluate("() => { document.querySelector('.readout').style.color = '' }")


def test_light_and_dark_mode_have_the_right_background_and_use_color(pages: dict[str, BrowserPage]) -> None:
    for view in ("Heat map", "Lines"):
        for visit in pages.values():
            visit.choose("Show as", view)
        light, dark = pages["light"].screenshot(), pages["dark"].screenshot()
        assert light.shape == dark.shape
        assert (light[0, 0].min(), dark[0, 0].max()) > (240, 0)
        assert np.median(light) > 240
        assert np.median(dark) < 40
        # Many pixels are colored, that is, not gray.
        for image in (light, dark):
            assert (np.ptp(image, axis=2) > 40).sum() > 2000


@pytest.mark.parametrize("view", ["heatmap", "lines"])
def test_elements_do_not_overlap_or_overflow(browser: Any, address: str, view: str) -> None:
    for size in ({"width": 1280, "height": 900}, PHONE):
        opened = BrowserPage(browser, f"{address}#view={view}", viewport=size)
        for number in range(len(SENTENCES)):
            opened.page.select_option(".sentences select", str(number))
            assert opened.page.evaluate(HORIZONTAL_OVERFLOW) <= 0
            for labels in (".heat-map tbody th span", ".line-view li span", ".controls fieldset, .toggle", ".line"):
                assert opened.page.evaluate(OVERLAPS, labels) == 0, (number, labels, size)
        assert opened.screenshot().shape[1] == size["width"]
        opened.close()


def test_long_sentences_scroll_below_their_headers(browser: Any, address: str) -> None:
    opened = BrowserPage(browser, f"{address}#sentence={LONG}")
    box = opened.page.locator(".heat-map")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth && box.scrollHeight > box.clientHeight")
    opened.page.focus("td[data-row='0'][data-column='0']")
    opened.page.keyboard.press("PageDown")
    opened.page.keyboard.press("End")
    assert opened.readout().startswith("</s> attends to </s>")
    last = opened.page.locator("td[data-row='40'][data-column='50']").bounding_box()
    head = opened.page.locator("thead th[data-column='50']").bounding_box()
    side = opened.page.locator("tbody th[data-row='40']").bounding_box()
    outer = box.bounding_box()
    assert outer["x"] <= side["x"] < last["x"] < outer["x"] + outer["width"]
    assert outer["y"] <= head["y"] < last["y"] < outer["y"] + outer["height"]
    opened.choose("Show as", "Lines")
    assert opened.page.locator(".line-view").evaluate("box => box.scrollHeight > box.clientHeight")
    opened.close()


def test_right_to_left_sentences_keep_their_order(browser: Any, address: str) -> None:
    opened = BrowserPage(browser, f"{address}#sentence={RIGHT_TO_LEFT}")
    pieces = [piece.bounding_box()["x"] for piece in opened.page.locator(".line").first.locator(".piece").all()]
    assert pieces == sorted(pieces, reverse=True)
    option = opened.page.locator("option").nth(RIGHT_TO_LEFT).inner_text()
    assert option == "3. \u2068ذهب الولد إلى المدرسة .\u2069 → \u2068הילד הלך לבית הספר.\u2069"
    opened.close()


def test_controls_with_a_single_option_are_hidden(browser: Any, address: str) -> None:
    opened = BrowserPage(browser, f"{address}#sentence={SHORT}")
    assert opened.page.get_by_role("group").all_text_contents() == ["Show asHeat mapLines", "Copy asSVGPNG"]
    assert not opened.page.locator(".head-grid").is_visible()
    assert opened.weights().shape == (2, 2)
    opened.close()


# ---- As a module on a served page ----

POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
HOME = """<!doctype html><html lang="en"><title>Home</title>
<link rel="stylesheet" href="/view/base.css"><link rel="stylesheet" href="/view/attention.css">
<div id="one"></div><div id="two"></div><button id="other">other</button>
<script type="module" src="/home.js"></script>"""
SCRIPT = """import { attentionView } from "/view/attention.js";
const { first, second } = await (await fetch("/data.json")).json();
attentionView(document.getElementById("one"), first, { storeInUrl: false });
const { show } = attentionView(document.getElementById("two"), first, { storeInUrl: false });
document.getElementById("other").addEventListener("click", () => show(second));"""


def test_modules_work_on_a_served_page_with_a_strict_policy(browser: Any) -> None:
    data = json.dumps({"first": viewer_data([SENTENCES[0]]), "second": viewer_data([SENTENCES[SHORT]])})
    responses = {
        "/": ("text/html", HOME),
        "/home.js": ("text/javascript", SCRIPT),
        "/data.json": ("application/json", data),
    }

    def answer(route: Any) -> None:
        path = "/" + route.request.url.split("/", 3)[3]
        media_type, body = responses.get(path) or (
            "text/javascript" if path.endswith(".js") else "text/css",
            files("saccade.view").joinpath("web", path.removeprefix("/view/")).read_text("utf-8"),
        )
        headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
        route.fulfill(content_type=f"{media_type}; charset=utf-8", body=body, headers=headers)

    page = browser.new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.route("http://localhost/**", answer)
    page.goto("http://localhost/")
    one, two = page.locator("#one"), page.locator("#two")
    two.get_by_role("group", name="Show as").get_by_text("Lines").click()
    two.get_by_role("group", name="Head").get_by_text("Maximum").click()
    assert one.locator(".heat-map").count() == 1  # the two viewers have separate controls
    assert two.locator(".line-view path").count() == 9
    page.click("#other")
    assert two.locator(".line-view li").all_text_contents() == [
        "ja",
        "</s>",
        "yes",
        "</s>",
    ]  # the selected view is kept
    page.evaluate("() => { delete Navigator.prototype.clipboard }")
    with page.expect_download() as download:
        two.get_by_role("button", name="PNG").click()
    assert download.value.suggested_filename == "attention.png"
    assert page.url == "http://localhost/"
    assert messages == []
    page.close()
