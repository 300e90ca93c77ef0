"""Typed access to the parts of a model."""

from typing import TypeVar

from torch import nn

_Module = TypeVar("_Module", bound=nn.Module)


def submodule(parent: nn.Module, name: str, kind: type[_Module]) -> _Module:
    """The submodule of this (dotted) name, which must be of this class."""
    module = parent.get_submodule(name)
    if not isinstance(module, kind):
        raise TypeError(f"{name}: expected a {kind.__name__}, got a {type(module).__name__}")
    return module
