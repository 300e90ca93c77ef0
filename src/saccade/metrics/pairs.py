"""Sources and references that belong together."""

from collections.abc import Sequence

from saccade.errors import DataError


def paired(sources: Sequence[str], references: Sequence[str], src: str, ref: str) -> list[tuple[str, str]]:
    if len(sources) != len(references):
        raise DataError(f"{src} has {len(sources):,} lines but {ref} has {len(references):,}")
    return list(zip(sources, references, strict=True))
