"""The languages that a run translates, and the English names of languages."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from babel import Locale, UnknownLocaleError

from saccade.config import kind_of
from saccade.recipe import Recipe
from saccade.serve.language_pairs import LanguagePair

_EXTRA_SUFFIXES = (".gz", ".txt")


def language_pair_of(recipe: Recipe) -> LanguagePair | None:
    """The source and target language, from the file suffixes, field names or options of the training data; None if
    these are not language codes."""
    options: Mapping[str, Any] = recipe.data.train.options  # type: ignore[attr-defined] - a filled slot is a Choice
    match kind_of(recipe.data.train):
        case "dates":
            pair = options["from"], options["to"]
        case "pairs":
            pair = _language_suffix(options["src"]), _language_suffix(options["tgt"])
        case "jsonl":
            pair = options["src"], options["tgt"]
        case _:
            return None
    return pair if all(map(_is_language, pair)) and pair[0] != pair[1] else None


def _language_suffix(name: str) -> str:
    """`corpus/train.de.gz` → `de`."""
    path = PurePath(name)
    while path.suffix in _EXTRA_SUFFIXES:
        path = path.with_suffix("")
    return path.suffix.removeprefix(".")


def _locale(code: str) -> Locale | None:
    try:
        return Locale.parse(code.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        return None


def _is_language(code: str) -> bool:
    return _locale(code) is not None


def language_name(code: str) -> str:
    """`de` → `German`; an unknown code is returned as it is."""
    locale = _locale(code)
    return (locale.get_display_name("en") if locale else None) or code
