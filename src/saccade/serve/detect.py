"""Which of the served languages a text is in."""

from collections.abc import Sequence
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

MAX_DETECT_CHARACTERS = 2000  # characters that are looked at


class Detector:
    """Likelihoods of languages by the byte n-grams of a text (Lui & Baldwin 2012). The same text, the same answer."""

    def __init__(self, codes: Sequence[str]):
        """`codes` are all languages a text may be in."""
        self._identifier = _identifier(frozenset(map(_base, codes)))

    def rank(self, text: str, codes: Sequence[str]) -> list[tuple[str, int]]:
        """Each of `codes` with a confidence of 0 to 100, the likeliest first."""
        shares = dict(self._identifier.rank(text[:MAX_DETECT_CHARACTERS]))
        likely = [(code, round(100 * shares.get(_base(code), 0.0))) for code in codes]
        return sorted(likely, key=lambda found: -found[1])


@cache
def _identifier(codes: frozenset[str]) -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(sorted(codes & set(identifier.labels)) or None)
    return identifier


def _base(code: str) -> str:
    return code.replace("-", "_").partition("_")[0].lower()
