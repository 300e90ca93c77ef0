"""Language identification among the served languages."""

from collections.abc import Sequence
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

MAX_DETECT_CHARACTERS = 2000  # the rest of a longer text is ignored


class LanguageDetector:
    """Language probabilities from the byte n-grams of a text (Lui & Baldwin 2012). Deterministic."""

    def __init__(self, codes: Sequence[str]):
        """`codes` are all languages that a text may be in."""
        self._identifier = _identifier(frozenset(map(_base_language, codes)))

    def rank(self, text: str, codes: Sequence[str]) -> list[tuple[str, int]]:
        """Each of `codes` with a confidence from 0 to 100, the most likely first."""
        probabilities = dict(self._identifier.rank(text[:MAX_DETECT_CHARACTERS]))
        confidences = [(code, round(100 * probabilities.get(_base_language(code), 0.0))) for code in codes]
        return sorted(confidences, key=lambda item: -item[1])


@cache
def _identifier(codes: frozenset[str]) -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(sorted(codes & set(identifier.labels)) or None)
    return identifier


def _base_language(code: str) -> str:
    """`pt_BR` → `pt`."""
    return code.replace("-", "_").partition("_")[0].lower()
