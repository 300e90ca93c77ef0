"""Language pairs as they are typed."""

import re

LanguagePair = tuple[str, str]

_TYPED = re.compile(r"([A-Za-z]{2,3}(?:_[A-Za-z0-9]+)*)-([A-Za-z]{2,3}(?:_[A-Za-z0-9]+)*)=(.+)", re.DOTALL)


def parse_run_argument(argument: str) -> tuple[LanguagePair | None, str]:
    """`en-de=runs/x` → (("en", "de"), "runs/x"); a bare path says no languages."""
    found = _TYPED.fullmatch(argument)
    return ((found[1], found[2]), found[3]) if found else (None, argument)
