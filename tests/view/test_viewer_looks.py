"""How the viewer looks and whom it serves: by day and by night, on a phone, for long sentences, for a screen reader."""

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
from view.browser import Visit
from view.examples import example, rows_that_sum_to_one

PHONE = {"width": 390, "height": 800}

# Pairs of labels of one kind that cover each other, by more than the hair's breadth of rounding.
OVERLAPS = """(selector) => {
  const boxes = [...document.querySelectorAll(selector)].map((each) => each.getBoundingClientRect());
  return boxes.flatMap((one, i) => boxes.slice(i + 1).filter((other) =>
    Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1)).length;
}"""
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def sentence(source: str, target: str, heads: int = 2) -> AttentionMaps:
    axes = {}
    for side, text in (("source", source), ("target", target)):
        labels = (*text.split(), "</s>")
        axes[side] = Axis(labels, tuple(range(len(labels))))
    rows, columns = axes["target"], axes["source"]
    weights = rows_that_sum_to_one((heads, len(rows), len(columns)), 1)
    return AttentionMaps(source, target, {"decoder.layers.0.cross": AttentionMap(weights, rows, columns, "cross")})


SENTENCES = [
    example(),
    sentence(" ".join(f"Satzglied{index}" for index in range(50)), " ".join(f"phrase{index}" for index in range(40))),
    sentence("ذهب الولد إلى المدرسة .", "הילד הלך לבית הספר."),
    sentence("👩\u200d🏫 e\u0301te\u0301 图书馆 नमस्ते", "Donaudampfschifffahrtsgesellschaftskapitän ja"),
    sentence("ja", "yes", heads=1),
]
LONG, RIGHT_TO_LEFT, ODD, SHORT = range(1, 5)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(SENTENCES, tmp_path_factory.mktemp("looks") / "page.html", "Attention").as_uri()


@pytest.fixture(scope="module")
def pages(browser: Any, address: str) -> Iterator[dict[str, Visit]]:
    """The page by day and by night, open to axe."""
    opened = {scheme: Visit(browser, address, color_scheme=scheme, bypass_csp=True) for scheme in ("light", "dark")}
    yield opened
    for visit in opened.values():
        visit.close()


@pytest.mark.parametrize(("scheme", "view"), [*product(("light", "dark"), ("Heat map", "Lines"))])
def test_axe_finds_nothing_serious(pages: dict[str, Visit], scheme: str, view: str) -> None:
    visit = pages[scheme]
    visit.normalizer("Show as", view)
    assert visit.findings() == []
    if view == "Heat map":
        visit.page.locator(".toggle").click()  # numbers on every shade
        assert visit.findings() == []
        visit.page.locator(".toggle").click()


def test_axe_finds_nothing_serious_where_things_scroll(browser: Any, address: str) -> None:
    opened = Visit(browser, f"{address}#sentence={LONG}", viewport={"width": 700, "height": 600}, bypass_csp=True)
    # What scrolls without anything in it to focus is itself in reach of the keyboard.
    assert opened.page.locator(".line").first.get_attribute("tabindex") == "0"
    assert opened.findings() == []
    opened.normalizer("Show as", "Lines")
    assert opened.findings() == []
    opened.close()


def test_axe_would_find_something(pages: dict[str, Visit]) -> None:
    visit = pages["light"]
    visit.page.evaluate("() => { document.querySelector('.readout').style.color = '#ddd' }")
    assert any(finding.startswith("color-contrast") for finding in visit.findings())
    visit.page.evaluate("() => { document.querySelector('.readout').style.color = '' }")


def test_screenshots_by_day_and_by_night(pages: dict[str, Visit]) -> None:
    for view in ("Heat map", "Lines"):
        by_day, by_night = pages["light"], pages["dark"]
        for visit in (by_day, by_night):
            visit.normalizer("Show as", view)
        day, night = by_day.screenshot(), by_night.screenshot()
        assert day.shape == night.shape
        assert (day[0, 0].min(), night[0, 0].max()) > (240, 0)
        assert np.median(day) > 240
        assert np.median(night) < 40
        # Something is drawn in colour, and not only in greys.
        for picture in (day, night):
            assert (np.ptp(picture, axis=2) > 40).sum() > 2000


@pytest.mark.parametrize("view", ["map", "lines"])
def test_nothing_overlaps_or_sticks_out(browser: Any, address: str, view: str) -> None:
    for size in ({"width": 1280, "height": 900}, PHONE):
        opened = Visit(browser, f"{address}#view={view}", viewport=size)
        for number in range(len(SENTENCES)):
            opened.page.select_option(".sentences select", str(number))
            assert opened.page.evaluate(TOO_WIDE) <= 0
            for labels in (".heat-map tbody th span", ".line-view li span", ".controls fieldset, .toggle", ".line"):
                assert opened.page.evaluate(OVERLAPS, labels) == 0, (number, labels, size)
        assert opened.screenshot().shape[1] == size["width"]
        opened.close()


def test_long_sentences_scroll_under_their_heads(browser: Any, address: str) -> None:
    opened = Visit(browser, f"{address}#sentence={LONG}")
    box = opened.page.locator(".heat-map")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth && box.scrollHeight > box.clientHeight")
    opened.page.focus("td[data-row='0'][data-column='0']")
    opened.page.keyboard.press("PageDown")
    opened.page.keyboard.press("End")
    assert opened.said().startswith("</s> looks at </s>")
    last = opened.page.locator("td[data-row='40'][data-column='50']").bounding_box()
    head = opened.page.locator("thead th[data-column='50']").bounding_box()
    side = opened.page.locator("tbody th[data-row='40']").bounding_box()
    outer = box.bounding_box()
    assert outer["x"] <= side["x"] < last["x"] < outer["x"] + outer["width"]
    assert outer["y"] <= head["y"] < last["y"] < outer["y"] + outer["height"]
    opened.normalizer("Show as", "Lines")
    assert opened.page.locator(".line-view").evaluate("box => box.scrollHeight > box.clientHeight")
    opened.close()


def test_right_to_left_text_keeps_its_order(browser: Any, address: str) -> None:
    opened = Visit(browser, f"{address}#sentence={RIGHT_TO_LEFT}")
    pieces = [piece.bounding_box()["x"] for piece in opened.page.locator(".line").first.locator(".piece").all()]
    assert pieces == sorted(pieces, reverse=True)
    option = opened.page.locator("option").nth(RIGHT_TO_LEFT).inner_text()
    assert option == "3. \u2068ذهب الولد إلى المدرسة .\u2069 → \u2068הילד הלך לבית הספר.\u2069"
    opened.close()


def test_one_head_and_one_word_leave_nothing_to_pick(browser: Any, address: str) -> None:
    opened = Visit(browser, f"{address}#sentence={SHORT}")
    assert opened.page.get_by_role("group").all_text_contents() == ["Show asHeat mapLines", "Copy asSVGPNG"]
    assert not opened.page.locator(".multiples").is_visible()
    assert opened.numbers().shape == (2, 2)
    opened.close()


# ---- As a module on a served page ----

POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
HOME = """<!doctype html><html lang="en"><title>Home</title>
<link rel="stylesheet" href="/view/base.css"><link rel="stylesheet" href="/view/attention.css">
<div id="one"></div><div id="two"></div><button id="other">other</button>
<script type="module" src="/home.js"></script>"""
SCRIPT = """import { attentionView } from "/view/attention.js";
const { first, second } = await (await fetch("/data.json")).json();
attentionView(document.getElementById("one"), first, { address: false });
const { show } = attentionView(document.getElementById("two"), first, { address: false });
document.getElementById("other").addEventListener("click", () => show(second));"""


def test_modules_work_on_a_served_page_with_a_strict_policy(browser: Any) -> None:
    data = json.dumps({"first": viewer_data([SENTENCES[0]]), "second": viewer_data([SENTENCES[SHORT]])})
    own = {"/": ("text/html", HOME), "/home.js": ("text/javascript", SCRIPT), "/data.json": ("application/json", data)}

    def answer(route: Any) -> None:
        path = "/" + route.request.url.split("/", 3)[3]
        kind, body = own.get(path) or (
            "text/javascript" if path.endswith(".js") else "text/css",
            files("saccade.view").joinpath("web", path.removeprefix("/view/")).read_text("utf-8"),
        )
        headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
        route.fulfill(content_type=f"{kind}; charset=utf-8", body=body, headers=headers)

    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.route("http://localhost/**", answer)
    page.goto("http://localhost/")
    one, two = page.locator("#one"), page.locator("#two")
    two.get_by_role("group", name="Show as").get_by_text("Lines").click()
    two.get_by_role("group", name="Head").get_by_text("Maximum").click()
    assert one.locator(".heat-map").count() == 1  # the two do not share their pickers
    assert two.locator(".line-view path").count() == 9
    page.click("#other")
    assert two.locator(".line-view li").all_text_contents() == ["ja", "</s>", "yes", "</s>"]  # the view is kept
    page.evaluate("() => { delete Navigator.prototype.clipboard }")
    with page.expect_download() as download:
        two.get_by_role("button", name="PNG").click()
    assert download.value.suggested_filename == "attention.png"
    assert page.url == "http://localhost/"
    assert complaints == []
    page.close()
