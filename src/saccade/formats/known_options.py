"""Which options a format knows of. What it does not know it does not export: a new option of a part must not be left
out silently."""

from collections.abc import Callable, Mapping
from typing import Any

from saccade.config import Choice, option_keys

KnownOptions = Mapping[Callable[..., Any], set[str]]
"""The class or function of each kind that a format knows → the options that the format reads, or that have no effect on
a trained model."""


def why_unknown(key: str, choice: Choice, known: KnownOptions, library: str) -> str | None:
    """The config key of a choice whose class the format does not know, or of an option of it, with the reason; None if
    all are known. A subclass is another class."""
    if choice.factory not in known:
        name = getattr(choice.factory, "__name__", choice.kind)
        return f'{key}: the export to {library} does not know the class {name} of "{choice.kind}"; use a built-in kind'
    unknown = sorted(option_keys(choice.factory) - known[choice.factory])
    if unknown:
        return f'{key}.{unknown[0]}: the export to {library} does not know this option of "{choice.kind}"'
    return None
