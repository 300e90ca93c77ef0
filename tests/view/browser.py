"""A real browser for the tests: Debian's chromium, driven by playwright."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def program() -> str | None:
    """Where the browser is."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def skip_without_browser(item: pytest.Item) -> None:
    """For `pytest_runtest_setup` of a conftest: skipped at one place, all browser tests together say it in one line."""
    if "browser" not in getattr(item, "fixturenames", ()):
        return
    missing = "chromium on the PATH" if program() is None else "playwright" if not find_spec("playwright") else ""
    if missing:
        pytest.skip(f"browser tests did not run: there is no {missing}")


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program(), args=FLAGS)
        yield running
        running.close()


class Visit:
    """A page that is open, with everything it complained about and asked for."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | settings))
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def numbers(self) -> np.ndarray:
        rows = self.page.locator(".attention tbody tr").all()
        return np.array([[float(cell) for cell in row.locator("td").all_text_contents()] for row in rows])

    def said(self) -> str:
        return self.page.locator(".readout").inner_text()

    def normalizer(self, group: str, title: str) -> None:
        self.page.get_by_role("group", name=group).get_by_text(title, exact=True).click()

    def lit(self) -> list[str]:
        return self.page.locator(".on").all_text_contents()

    def close(self) -> None:
        assert self.complaints == []
        assert len(self.requests) == 1
        self.page.close()

    def screenshot(self) -> np.ndarray:
        """The whole page as pixels [height width 3]."""
        return pixels(self.page.context.browser, self.page.screenshot(full_page=True, animations="disabled"))

    def findings(self) -> list[str]:
        """What axe-core finds serious or critical; the page must have been opened with `bypass_csp`."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is missing")
        found = axe.Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in ("serious", "critical")
        ]


# In a page of its own, so that no policy of the page under test is in the way.
DECODE = """async (source) => {
  const image = Object.assign(new Image(), { src: source });
  await image.decode();
  const { naturalWidth: width, naturalHeight: height } = image;
  const pen = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  pen.drawImage(image, 0, 0);
  const { data } = pen.getImageData(0, 0, width, height);
  let bytes = "";
  for (let at = 0; at < data.length; at += 32768) bytes += String.fromCharCode(...data.subarray(at, at + 32768));
  return [height, width, btoa(bytes)];
}"""


def pixels(browser: Any, image: bytes, kind: str = "image/png") -> np.ndarray:
    """A picture as the browser draws it: [height width 3], whole numbers from 0 to 255."""
    page = browser.new_page()
    height, width, encoded = page.evaluate(DECODE, f"data:{kind};base64,{base64.b64encode(image).decode()}")
    page.close()
    colours = np.frombuffer(base64.b64decode(encoded), np.uint8).reshape(height, width, 4)
    return colours[:, :, :3].astype(int)
