"""Numeric series without labels: the input of a trained run."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from saccade.data.sources.numbers import (
    SEPARATOR,
    BadSeries,
    checked_header,
    first_bad,
    float32,
    members,
    number_of,
    open_archive,
    read_array,
)
from saccade.errors import DataError


def as_frames(values: object, width: int, location: str) -> np.ndarray:
    """Convert to a float32 array [T F], F = `width`. DataError with location and row if a value is not finite. An empty
    input has no frames."""
    try:
        numbers = np.asarray(values)
    except ValueError:
        raise DataError(f"{location}: has rows of different lengths; each frame needs {width} values") from None
    if not numbers.size:
        return np.zeros((0, width), dtype=np.float32)
    if numbers.dtype.kind not in "fiub":
        raise DataError(f"{location}: has data type {numbers.dtype}, not real numbers; the run needs numeric series")
    if numbers.ndim != 2 or numbers.shape[1] != width:
        raise DataError(f"{location}: has shape {list(numbers.shape)}, but the run needs [frames, {width}]")
    frames = float32(numbers)
    if bad := first_bad(numbers, frames):
        raise DataError("{}: row {}, column {} {}".format(location, *bad))
    return frames


def npz_frames(path: Path, width: int) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays NAME_x of an .npz file as (NAME, frames); if there are none, all arrays with two axes."""
    file = str(path)
    with open_archive(path, file) as archive:
        arrays = members(archive, file)
        try:
            headers = {key: checked_header(archive, member, f"{file}:{key}") for key, member in arrays.items()}
            named = {key.removesuffix("_x"): key for key in arrays if key.endswith("_x") and len(key) > len("_x")}
            selected = named or {key: key for key, header in headers.items() if len(header.shape) == 2}
            for name, key in selected.items():
                yield name, as_frames(read_array(archive, arrays[key]), width, f"{file}:{name}")
        except BadSeries as bad:
            raise DataError(f"{file}: {bad}") from None
    if not selected:
        raise DataError(f"{file}: has no array NAME_x and none with two axes; save series as [frames, {width}]")


def frame_of(line: str, width: int, location: str) -> np.ndarray:
    """The numbers of a line of text [F]. A label after them is ignored."""
    texts = SEPARATOR.split(line.strip())
    if len(texts) not in (width, width + 1):
        raise DataError(f"{location}: has {len(texts)} numbers, but the run needs {width} per frame")
    try:
        numbers = np.array([[number_of(text, column) for column, text in enumerate(texts[:width])]])
    except ValueError as error:
        raise DataError(f"{location}: {error}") from None
    frames = float32(numbers)
    if bad := first_bad(numbers, frames):
        raise DataError("{}: column {} {}".format(location, *bad[1:]))
    return frames[0]
