"""Which languages a run translates, and what they are called."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from babel import Locale, UnknownLocaleError

from saccade.recipe import Recipe, kind_of
from saccade.serve.language_pairs import LanguagePair

_PACKED = (".gz", ".txt")


def pair_of(recipe: Recipe) -> LanguagePair | None:
    """The languages a recipe's training text is named by, if they are languages."""
    options: Mapping[str, Any] = recipe.data.train.options  # type: ignore[attr-defined] - a filled slot is a Choice
    match kind_of(recipe.data.train):
        case "dates":
            found = options["from"], options["to"]
        case "pairs":
            found = _ending(options["src"]), _ending(options["tgt"])
        case "jsonl":
            found = options["src"], options["tgt"]
        case _:
            return None
    return found if all(map(_known, found)) and found[0] != found[1] else None


def _ending(name: str) -> str:
    """`corpus/train.de.gz` → `de`."""
    path = PurePath(name)
    while path.suffix in _PACKED:
        path = path.with_suffix("")
    return path.suffix.removeprefix(".")


def _locale(code: str) -> Locale | None:
    try:
        return Locale.parse(code.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        return None


def _known(code: str) -> bool:
    return _locale(code) is not None


def language_name(code: str) -> str:
    """`de` → `German`; an unknown code is its own name."""
    locale = _locale(code)
    return (locale.get_display_name("en") if locale else None) or code
