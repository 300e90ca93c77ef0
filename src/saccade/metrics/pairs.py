"""Pairs of source and reference."""

from collections.abc import Sequence

from saccade.errors import DataError


def paired(sources: Sequence[str], references: Sequence[str], src: str, ref: str) -> list[tuple[str, str]]:
    """Pair the lines of two files. `src` and `ref` are their names, for the error message."""
    if len(sources) != len(references):
        raise DataError(f"{src} has {len(sources):,} lines but {ref} has {len(references):,}")
    return list(zip(sources, references, strict=True))
