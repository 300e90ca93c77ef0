"""Export of the viewer as SVG and PNG: to the clipboard, or to a file if the page may not use the clipboard."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from saccade.view.page import write_page
from view.browser import BrowserPage, pixels
from view.examples import HOSTILE, example

SVG = "{http://www.w3.org/2000/svg}"
INVALID_IN_XML = "\x00\x1b\ud800"
BIDI_OVERRIDE = "\u202e"

READ_CLIPBOARD = """async (type) => {
  const [item] = await navigator.clipboard.read();
  const bytes = new Uint8Array(await (await item.getType(type)).arrayBuffer());
  return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
}"""


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    return write_page(
        [example(), example(HOSTILE + INVALID_IN_XML + BIDI_OVERRIDE)], tmp_path / "page.html", "Attention"
    )


@pytest.fixture
def visit(browser: Any, page_file: Path) -> Iterator[BrowserPage]:
    opened = BrowserPage(browser, page_file.as_uri(), permissions=["clipboard-read", "clipboard-write"])
    yield opened
    opened.close()


def copied(visit: BrowserPage, format_: str, media_type: str) -> bytes:
    visit.page.get_by_role("button", name=format_).click()
    visit.page.get_by_text(f"Copied as {format_}").wait_for()
    return base64.b64decode(visit.page.evaluate(READ_CLIPBOARD, media_type))


def texts(svg: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in svg.iter(f"{SVG}text")]


def test_heat_map_as_svg_has_all_labels_and_cells_colored_by_weight(visit: BrowserPage) -> None:
    svg = ElementTree.fromstring(copied(visit, "SVG", "text/plain"))
    assert {"Hallo", "Welt", "hello", "world", "</s>"} <= set(texts(svg))
    background, *rectangles = svg.iter(f"{SVG}rect")
    assert (background.get("fill"), background.get("width")) == ("#fff", svg.get("width"))
    cells = [rectangle for rectangle in rectangles if float(rectangle.get("height", 0)) > 20]
    weights = example().words()["decoder.layers.1.cross"].weights.mean(axis=0)
    brightness = [sum(map(int, cell.get("fill", "")[4:-1].split(","))) for cell in cells]
    assert np.argsort(brightness).tolist() == np.argsort(-weights.ravel()).tolist()
    assert (svg.findtext(f"{SVG}title") or "").startswith("decoder.layers.1.cross, average of heads")
    visit.page.locator(".toggle").click()
    numbered = ElementTree.fromstring(copied(visit, "SVG", "text/plain"))
    assert f"{weights[1, 0]:.2f}" in texts(numbered)
    assert visit.page.get_by_text("Copied as").count() == 1


def test_line_view_as_svg_has_all_words_and_lines(visit: BrowserPage) -> None:
    visit.choose("Show as", "Lines")
    visit.choose("Head", "1")
    svg = ElementTree.fromstring(copied(visit, "SVG", "image/svg+xml"))
    assert texts(svg) == ["Hallo", "Welt", "</s>", "hello", "world", "</s>"]
    weights = np.sort(example().words()["decoder.layers.1.cross"].weights[1].ravel())
    widths = [float(path.get("stroke-width", 0)) for path in svg.iter(f"{SVG}path")]
    np.testing.assert_allclose(widths, 0.5 + 5.5 * weights[weights >= 0.01], atol=0.01)
    assert (svg.findtext(f"{SVG}title") or "").startswith("decoder.layers.1.cross, head 1")


@pytest.mark.parametrize("view", ["Heat map", "Lines"])
def test_png_and_svg_are_the_same_light_image_in_dark_mode_too(visit: BrowserPage, view: str) -> None:
    visit.choose("Show as", view)
    in_light_mode = copied(visit, "SVG", "text/plain")
    visit.page.emulate_media(color_scheme="dark")
    visit.choose("Head", "Maximum")
    visit.choose("Head", "Average")  # redraws the page in the colors of dark mode
    in_dark_mode = copied(visit, "SVG", "text/plain")
    assert in_dark_mode == in_light_mode
    browser = visit.page.context.browser
    svg = pixels(browser, in_dark_mode, "image/svg+xml")
    png = pixels(browser, copied(visit, "PNG", "image/png"))
    assert png.shape == (svg.shape[0] * 3, svg.shape[1] * 3, 3)
    assert (png[0, 0] == 255).all()  # the background is white
    small = png.reshape(svg.shape[0], 3, svg.shape[1], 3, 3).mean(axis=(1, 3))
    assert np.abs(small - svg).mean() < 3
    assert svg.min() < 60


def test_markup_and_control_characters_in_words_stay_text(visit: BrowserPage) -> None:
    visit.page.select_option(".sentences select", "1")
    visit.choose("Text as", "Pieces")
    for view in ("Heat map", "Lines"):
        visit.choose("Show as", view)
        svg = ElementTree.fromstring(copied(visit, "SVG", "text/plain"))  # fails unless it is well-formed
        assert {element.tag.removeprefix(SVG) for element in svg.iter()} <= {"svg", "title", "rect", "text", "path"}
        assert any(text.startswith("</script><img") for text in texts(svg))
        copied(visit, "PNG", "image/png")


def test_without_a_clipboard_the_image_is_saved_as_a_file(browser: Any, page_file: Path, tmp_path: Path) -> None:
    opened = BrowserPage(browser, page_file.as_uri())
    opened.page.evaluate("() => { delete Navigator.prototype.clipboard }")
    for format_, start in (("SVG", b"<svg xmlns"), ("PNG", b"\x89PNG")):
        with opened.page.expect_download() as download:
            opened.page.get_by_role("button", name=format_).click()
        assert download.value.suggested_filename == f"attention.{format_.lower()}"
        download.value.save_as(tmp_path / format_)
        assert (tmp_path / format_).read_bytes().startswith(start)
        assert opened.page.locator(".copy output").inner_text() == f"Saved as attention.{format_.lower()}"
    opened.requests[:] = [url for url in opened.requests if not url.startswith("blob:")]
    opened.close()
