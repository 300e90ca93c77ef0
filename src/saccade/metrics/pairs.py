"""Pair the lines of two parallel files."""

from collections.abc import Sequence

from saccade.errors import DataError, plural


def paired(first: Sequence[str], second: Sequence[str], first_name: str, second_name: str) -> list[tuple[str, str]]:
    """Pair the lines of two files, which must have the same number. The names are for the error message."""
    if len(first) != len(second):
        raise DataError(
            f"{first_name}: has {plural(len(first), 'line')}, but {second_name} has {len(second):,}; "
            "both need one line for each sentence pair"
        )
    return list(zip(first, second, strict=True))
