"""Every shape annotation of the package is checked while tests run, and only then."""

import os
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jaxtyping
import pytest
import torch
from beartype import beartype

sys.path.append(str(Path(__file__).parent))  # so that planted tests and contracts share `contracts.checks`
torch.set_num_threads(1)
os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported: no test may ask the network

CHECKED = [
    "parts",
    "models",
    "places",
    "decode.loops",
    "decode.rules",
    "decode.torch_engine",
    "tasks",
    "align",
    "data.batches",
]


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """beartype, after making the protocols it meets checkable: the package itself never asks for isinstance."""
    if "<locals>" in function.__qualname__:
        return function  # made anew at each call, and so would the check be
    for hint in function.__annotations__.values():
        _make_checkable(hint)
    return beartype(function)


def _make_checkable(hint: Any) -> None:
    if isinstance(hint, type) and getattr(hint, "_is_protocol", False):
        typing.runtime_checkable(hint)
    for inner in hint if isinstance(hint, list) else typing.get_args(hint):
        _make_checkable(inner)


def _install() -> None:
    early = [name for name in sys.modules if name.startswith("saccade.")]
    assert not early, f"imported before their shapes could be checked: {early}"
    checker = ModuleType("saccade_checker")  # the hook wants a name, not a function
    checker.checked = checked  # type: ignore[attr-defined]
    sys.modules[checker.__name__] = checker
    jaxtyping.install_import_hook([f"saccade.{name}" for name in CHECKED], "saccade_checker.checked")


_install()


@pytest.fixture
def shaken() -> Callable[..., Any]:
    """Perturb all weights: contracts on fresh ones are weak (biases are zero, norms do nothing, tables agree)."""
    from contracts.checks import shaken

    return shaken


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Let a long test run at full speed."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
