"""A real browser for the tests: the system's chromium, controlled by playwright."""

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


def executable() -> str | None:
    """The path of the browser."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def skip_without_browser(item: pytest.Item) -> None:
    """For `pytest_runtest_setup` of a conftest. Skipping in one place makes pytest report all skips in one line."""
    if "browser" not in getattr(item, "fixturenames", ()):
        return
    missing = "chromium on the PATH" if executable() is None else "playwright" if not find_spec("playwright") else ""
    if missing:
        pytest.skip(f"browser tests did not run: there is no {missing}")


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable(), args=FLAGS)
        yield running
        running.close()


class BrowserPage:
    """An open page. It records console messages, script errors and dialogs in `messages`, and URLs in `requests`."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | settings))
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.messages.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def weights(self) -> np.ndarray:
        """The numbers in the table of weights."""
        rows = self.page.locator(".attention tbody tr").all()
        return np.array([[float(cell) for cell in row.locator("td").all_text_contents()] for row in rows])

    def readout(self) -> str:
        return self.page.locator(".readout").inner_text()

    def choose(self, group: str, option: str) -> None:
        """Click an option of a group of radio buttons."""
        self.page.get_by_role("group", name=group).get_by_text(option, exact=True).click()

    def highlighted(self) -> list[str]:
        return self.page.locator(".on").all_text_contents()

    def close(self) -> None:
        """Close the page, and check that it logged no message and requested nothing but itself."""
        assert self.messages == []
        assert len(self.requests) == 1
        self.page.close()

    def screenshot(self) -> np.ndarray:
        """The whole page as pixels [height width 3]."""
        return pixels(self.page.context.browser, self.page.screenshot(full_page=True, animations="disabled"))

    def accessibility_violations(self) -> list[str]:
        """Serious and critical violations that axe-core reports. The page must have been opened with `bypass_csp`."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is missing")
        violations = axe.Axe().run(self.page).response["violations"]
        return [
            f"{violation['id']}: {violation['nodes'][0]['html']}"
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ]


# Runs in a page of its own, so that the content security policy of the page under test does not apply.
DECODE_IMAGE = """async (source) => {
  const image = Object.assign(new Image(), { src: source });
  await image.decode();
  const { naturalWidth: width, naturalHeight: height } = image;
  const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  let bytes = "";
  for (let at = 0; at < data.length; at += 32768) bytes += String.fromCharCode(...data.subarray(at, at + 32768));
  return [height, width, btoa(bytes)];
}"""


def pixels(browser: Any, image: bytes, media_type: str = "image/png") -> np.ndarray:
    """An image as the browser renders it: [height width 3], integers from 0 to 255."""
    page = browser.new_page()
    source = f"data:{media_type};base64,{base64.b64encode(image).decode()}"
    height, width, encoded = page.evaluate(DECODE_IMAGE, source)
    page.close()
    channels = np.frombuffer(base64.b64decode(encoded), np.uint8).reshape(height, width, 4)
    return channels[:, :, :3].astype(int)
