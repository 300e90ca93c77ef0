"""Language pairs on the command line."""

import re

LanguagePair = tuple[str, str]

_PAIR_AND_PATH = re.compile(r"([A-Za-z]{2,3}(?:_[A-Za-z0-9]+)*)-([A-Za-z]{2,3}(?:_[A-Za-z0-9]+)*)=(.+)", re.DOTALL)


def parse_run_argument(argument: str) -> tuple[LanguagePair | None, str]:
    """`en-de=runs/x` → (("en", "de"), "runs/x"); a path alone has no pair: `runs/x` → (None, "runs/x")."""
    match = _PAIR_AND_PATH.fullmatch(argument)
    return ((match[1], match[2]), match[3]) if match else (None, argument)
