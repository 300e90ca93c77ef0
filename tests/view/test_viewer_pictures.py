"""Pictures of what is shown, as SVG and PNG: on the clipboard, or in a file where a page may not reach it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from saccade.view.page import write_page
from view.browser import Visit, pixels
from view.examples import HOSTILE, example

SVG = "{http://www.w3.org/2000/svg}"
UNREADABLE = "\x00\x1b\ud800\u202e"  # no XML file may hold the first three

READ = """async (type) => {
  const [item] = await navigator.clipboard.read();
  const bytes = new Uint8Array(await (await item.getType(type)).arrayBuffer());
  return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
}"""


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    return write_page([example(), example(HOSTILE + UNREADABLE)], tmp_path / "page.html", "Attention")


@pytest.fixture
def visit(browser: Any, page_file: Path) -> Iterator[Visit]:
    opened = Visit(browser, page_file.as_uri(), permissions=["clipboard-read", "clipboard-write"])
    yield opened
    opened.close()


def copied(visit: Visit, form: str, type_: str) -> bytes:
    visit.page.get_by_role("button", name=form).click()
    visit.page.get_by_text(f"Copied as {form}").wait_for()
    return base64.b64decode(visit.page.evaluate(READ, type_))


def texts(svg: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in svg.iter(f"{SVG}text")]


def test_the_heat_map_as_svg(visit: Visit) -> None:
    svg = ElementTree.fromstring(copied(visit, "SVG", "text/plain"))
    assert {"Hallo", "Welt", "hello", "world", "</s>"} <= set(texts(svg))
    background, *rectangles = svg.iter(f"{SVG}rect")
    assert (background.get("fill"), background.get("width")) == ("#fff", svg.get("width"))
    cells = [each for each in rectangles if float(each.get("height", 0)) > 20]
    weights = example().words()["decoder.layers.1.cross"].weights.mean(axis=0)
    brightness = [sum(map(int, each.get("fill", "")[4:-1].split(","))) for each in cells]
    assert np.argsort(brightness).tolist() == np.argsort(-weights.ravel()).tolist()
    assert (svg.findtext(f"{SVG}title") or "").startswith("decoder.layers.1.cross, average of heads")
    visit.page.locator(".toggle").click()
    numbered = ElementTree.fromstring(copied(visit, "SVG", "text/plain"))
    assert f"{weights[1, 0]:.2f}" in texts(numbered)
    assert visit.page.get_by_text("Copied as").count() == 1


def test_the_lines_as_svg(visit: Visit) -> None:
    visit.normalizer("Show as", "Lines")
    visit.normalizer("Head", "1")
    svg = ElementTree.fromstring(copied(visit, "SVG", "image/svg+xml"))
    assert texts(svg) == ["Hallo", "Welt", "</s>", "hello", "world", "</s>"]
    weights = np.sort(example().words()["decoder.layers.1.cross"].weights[1].ravel())
    widths = [float(path.get("stroke-width", 0)) for path in svg.iter(f"{SVG}path")]
    np.testing.assert_allclose(widths, 0.5 + 5.5 * weights[weights >= 0.01], atol=0.01)
    assert (svg.findtext(f"{SVG}title") or "").startswith("decoder.layers.1.cross, head 1")


@pytest.mark.parametrize("view", ["Heat map", "Lines"])
def test_png_and_svg_are_the_same_picture_by_night_too(visit: Visit, view: str) -> None:
    visit.normalizer("Show as", view)
    by_day = copied(visit, "SVG", "text/plain")
    visit.page.emulate_media(color_scheme="dark")
    visit.normalizer("Head", "Maximum")
    visit.normalizer("Head", "Average")  # drawn anew, in the colours of the night
    by_night = copied(visit, "SVG", "text/plain")
    assert by_night == by_day
    browser = visit.page.context.browser
    svg = pixels(browser, by_night, "image/svg+xml")
    png = pixels(browser, copied(visit, "PNG", "image/png"))
    assert png.shape == (svg.shape[0] * 3, svg.shape[1] * 3, 3)
    assert (png[0, 0] == 255).all()  # paper stays white
    small = png.reshape(svg.shape[0], 3, svg.shape[1], 3, 3).mean(axis=(1, 3))
    assert np.abs(small - svg).mean() < 3
    assert svg.min() < 60


def test_hostile_words_stay_words(visit: Visit) -> None:
    visit.page.select_option(".sentences select", "1")
    visit.normalizer("Text as", "Pieces")
    for view in ("Heat map", "Lines"):
        visit.normalizer("Show as", view)
        svg = ElementTree.fromstring(copied(visit, "SVG", "text/plain"))  # well-formed, or this fails
        assert {each.tag.removeprefix(SVG) for each in svg.iter()} <= {"svg", "title", "rect", "text", "path"}
        assert any(text.startswith("</script><img") for text in texts(svg))
        copied(visit, "PNG", "image/png")


def test_without_a_clipboard_the_picture_is_saved(browser: Any, page_file: Path, tmp_path: Path) -> None:
    opened = Visit(browser, page_file.as_uri())
    opened.page.evaluate("() => { delete Navigator.prototype.clipboard }")
    for form, begins in (("SVG", b"<svg xmlns"), ("PNG", b"\x89PNG")):
        with opened.page.expect_download() as download:
            opened.page.get_by_role("button", name=form).click()
        assert download.value.suggested_filename == f"attention.{form.lower()}"
        download.value.save_as(tmp_path / form)
        assert (tmp_path / form).read_bytes().startswith(begins)
        assert opened.page.locator(".copy output").inner_text() == f"Saved as attention.{form.lower()}"
    opened.requests[:] = [each for each in opened.requests if not each.startswith("blob:")]
    opened.close()
