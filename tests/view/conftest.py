"""One browser process for all tests of this folder."""

from collections.abc import Iterator
from typing import Any

import pytest

from view.browser import chromium, skip_without_browser


def pytest_runtest_setup(item: pytest.Item) -> None:
    skip_without_browser(item)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running
