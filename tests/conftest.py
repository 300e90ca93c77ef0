"""Shape annotations of the modules in `CHECKED` are checked while tests run, and only then; tests that use slow
fixtures are marked slow."""

import os
import shutil
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jaxtyping
import pytest
import torch
from beartype import beartype

sys.path.append(str(Path(__file__).parent))  # so that tests can import `contracts.checks` and each other's helpers
torch.set_num_threads(1)
TEMPORARY_CACHE = os.environ["SACCADE_CACHE"] = tempfile.mkdtemp(prefix="saccade-cache-")  # also for child processes
os.environ["HF_HUB_OFFLINE"] = "1"  # transformers reads it when it is imported: tests must not use the network

CHECKED = [
    "parts",
    "models",
    "places",
    "decode.loops",
    "decode.constraints",
    "decode.search_engine",
    "decode.torch_engine",
    "tasks",
    "align",
    "data.batches",
]


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with beartype's checks. Protocols in its annotations become runtime checkable, because the package
    itself never needs isinstance for them."""
    if "<locals>" in function.__qualname__:
        return function  # it is defined at every call of the outer function, and decorating it each time is slow
    for hint in function.__annotations__.values():
        _make_checkable(hint)
    return beartype(function)


def _make_checkable(hint: Any) -> None:
    kind = typing.get_origin(hint) or hint  # of a generic protocol, such as StepModel[Memory]
    if isinstance(kind, type) and getattr(kind, "_is_protocol", False):
        typing.runtime_checkable(kind)
    for inner in hint if isinstance(hint, list) else typing.get_args(hint):
        _make_checkable(inner)


def _install() -> None:
    early = [name for name in sys.modules if name.startswith("saccade.")]
    assert not early, f"imported before the import hook was installed, so their shapes are not checked: {early}"
    checker = ModuleType("saccade_checker")  # jaxtyping takes the checker's name, not the function
    checker.checked = checked  # type: ignore[attr-defined]
    sys.modules[checker.__name__] = checker
    jaxtyping.install_import_hook([f"saccade.{name}" for name in CHECKED], "saccade_checker.checked")


_install()


@pytest.fixture
def without_shape_checks() -> Iterator[None]:
    """Turn shape checks off, which makes a long test faster."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def pytest_unconfigure() -> None:
    shutil.rmtree(TEMPORARY_CACHE, ignore_errors=True)


# Fixtures that start a browser, a server or training processes: the tests that use them are slow.
SLOW_FIXTURES = {"browser", "server", "serve", "scripted", "drive", "reference", "two_ranks_run"}


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by `-m`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
