"""Pairs of source and reference."""

from collections.abc import Sequence

from saccade.errors import DataError, plural


def paired(sources: Sequence[str], references: Sequence[str], src: str, ref: str) -> list[tuple[str, str]]:
    """Pair the lines of two files. `src` and `ref` are their names, for the error message."""
    if len(sources) != len(references):
        raise DataError(
            f"{src}: has {plural(len(sources), 'line')}, but {ref} has {len(references):,}; "
            "both need one line for each sentence pair"
        )
    return list(zip(sources, references, strict=True))
