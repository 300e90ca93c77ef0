"""Saccade: train, inspect, compare and deploy attention-based sequence models.

    import saccade
    run = saccade.load("runs/demo")
    run.translate(["Tuesday, March 4, 2031"], beam=4)

Public names are imported on first use, so that `saccade --help` does not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from saccade import parts
    from saccade.api import Run, load, train
    from saccade.errors import ConfigError, DataError, RunError, SaccadeError
    from saccade.notes import capture
    from saccade.recipe import Recipe, read_recipe
    from saccade.view.maps import AttentionMaps

_MODULES = {  # public name → the module that defines it; "" if it is a module itself
    "AttentionMaps": "saccade.view.maps",
    "ConfigError": "saccade.errors",
    "DataError": "saccade.errors",
    "Recipe": "saccade.recipe",
    "Run": "saccade.api",
    "RunError": "saccade.errors",
    "SaccadeError": "saccade.errors",
    "capture": "saccade.notes",
    "load": "saccade.api",
    "parts": "",
    "read_recipe": "saccade.recipe",
    "train": "saccade.api",
}

__all__ = [
    "AttentionMaps",
    "ConfigError",
    "DataError",
    "Recipe",
    "Run",
    "RunError",
    "SaccadeError",
    "capture",
    "load",
    "parts",
    "read_recipe",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'saccade' has no attribute '{name}'")
    module = _MODULES[name]
    return getattr(importlib.import_module(module), name) if module else importlib.import_module(f"saccade.{name}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
