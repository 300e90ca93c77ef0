"""Series of numbers without labels, as a trained run is given them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from saccade.data.sources.numbers import (
    SEPARATOR,
    BadSeries,
    first_bad,
    float32,
    members,
    number_of,
    open_archive,
    read_array,
    sane_header,
)
from saccade.errors import DataError


def as_frames(values: Any, width: int, place: str) -> np.ndarray:
    """An array [T F] of finite numbers, or an error that names place and row. Nothing at all is no frames."""
    try:
        numbers = np.asarray(values)
    except ValueError:
        raise DataError(f"{place}: has rows of different lengths; give all {width} numbers") from None
    if not numbers.size:
        return np.zeros((0, width), dtype=np.float32)
    if numbers.dtype.kind not in "fiub":
        raise DataError(f"{place}: holds {numbers.dtype}, not real numbers; the run reads series of numbers")
    if numbers.ndim != 2 or numbers.shape[1] != width:
        raise DataError(f"{place}: has the shape {list(numbers.shape)}, but the run reads [frames, {width}]")
    frames = float32(numbers)
    if bad := first_bad(numbers, frames):
        raise DataError("{}: row {}, column {} {}".format(place, *bad))
    return frames


def npz_frames(path: Path, width: int) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays NAME_x of an .npz file as (NAME, frames), or all that have two axes if none is called so."""
    file = str(path)
    with open_archive(path, file) as archive:
        arrays = members(archive, file)
        try:
            headers = {key: sane_header(archive, member, f"{file}:{key}") for key, member in arrays.items()}
            named = {key.removesuffix("_x"): key for key in arrays if key.endswith("_x") and len(key) > len("_x")}
            chosen = named or {key: key for key, header in headers.items() if len(header.shape) == 2}
            for name, key in chosen.items():
                yield name, as_frames(read_array(archive, arrays[key]), width, f"{file}:{name}")
        except BadSeries as bad:
            raise DataError(f"{file}: {bad}") from None
    if not chosen:
        raise DataError(f"{file}: holds no array NAME_x and none with two axes; save series as [frames, {width}]")


def frame_of(line: str, width: int, place: str) -> np.ndarray:
    """The numbers of a line of text; a label after them is passed over."""
    texts = SEPARATOR.split(line.strip())
    if len(texts) not in (width, width + 1):
        raise DataError(f"{place}: has {len(texts)} numbers, but the run reads {width} a frame")
    try:
        numbers = np.array([[number_of(text, column) for column, text in enumerate(texts[:width])]])
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None
    frames = float32(numbers)
    if bad := first_bad(numbers, frames):
        raise DataError("{}: column {} {}".format(place, *bad[1:]))
    return frames[0]
