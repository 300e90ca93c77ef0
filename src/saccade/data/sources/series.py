"""Labeled numeric series: arrays of an .npz file, or text with one frame per line."""

import zipfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from saccade.config import Natural
from saccade.data.sources.columns import blocks
from saccade.data.sources.numbers import (
    SEPARATOR,
    BadSeries,
    Header,
    checked_header,
    first_bad,
    float32,
    members,
    number_of,
    open_archive,
    read_array,
    read_header,
)
from saccade.data.sources.rows import BadRow, Row, Series, existing
from saccade.errors import DataError, plural

_GROUPS_LISTED = 30
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


class LabeledSeries:
    """Numeric series with a label for each frame, or one for the whole series.

    An .npz file has arrays `NAME_x` [T F] and `NAME_y` ([T], or a single label). Any other file is text: one frame per
    line, its label last, and a blank line between two series.

    The group of a series is its NAME up to the first "_" (text has no groups); `groups` selects series by group.
    `window` cuts series into windows of that many frames; the last one may be shorter. `whole` replaces the labels of a
    series or window by the most frequent one, and leaves the row out if frames without a label are more frequent than
    any label. `unlabeled` is the label that means "no label"; a series with this single label is left out. In messages,
    rows, columns and frames count from 0 and lines from 1.
    """

    def __init__(
        self,
        folder: Path,
        *,
        file: str,
        groups: tuple[str, ...] = (),
        window: Natural = 0,
        whole: bool = False,
        unlabeled: str = "-1",
    ):
        self.folder = folder
        self.file = file
        self.groups = groups
        self.window = window
        self.whole = whole
        self.unlabeled = unlabeled

    def files(self) -> dict[str, Path]:
        """The path of the file."""
        return {"file": existing(self.folder, self.file, "file")}

    def rows(self) -> Iterator[Series | BadRow]:
        """Read one series after another, and cut it into windows."""
        path = self.files()["file"]
        read = _from_npz if path.suffix.lower() == ".npz" else _from_text
        for series in read(path, self.file, self.groups):
            if isinstance(series, BadRow):
                yield series
            else:
                yield from self._cut(series)

    def _cut(self, series: Series) -> Iterator[Series]:
        labels = self._without_unlabeled(series.target)
        size = self.window or len(series.source)
        for first in range(0, len(series.source), size):
            target = labels if isinstance(labels, str) else labels[first : first + size]
            if self.whole and not isinstance(target, str):
                target = _most_frequent(target)
            if target != "":
                location = f"{series.location}:{first}" if self.window else series.location
                yield Series(series.source[first : first + size], target, location, series.group)

    def _without_unlabeled(self, labels: tuple[str, ...] | str) -> tuple[str, ...] | str:
        if isinstance(labels, str):
            return "" if labels == self.unlabeled else labels
        return tuple("" if label == self.unlabeled else label for label in labels)


def _most_frequent(labels: Sequence[str]) -> str:
    """The most frequent label. Ties go to a real label before "", and then to the first one."""
    counts = Counter(labels)
    return max(counts, key=lambda label: (counts[label], label != ""))


def groups_in_several_splits(splits: Mapping[str, Sequence[Row]]) -> list[str]:
    """Messages about groups that are in several splits: "group u01 is in data.train and data.test"."""
    return shared_groups(
        {split: {row.group for row in rows if isinstance(row, Series)} for split, rows in splits.items()}
    )


def shared_groups(groups: Mapping[str, Iterable[str]]) -> list[str]:
    """Messages about groups that are in several splits, given the groups of each split."""
    splits_of: dict[str, list[str]] = {}
    for split, names in groups.items():
        for name in sorted({*names} - {""}):
            splits_of.setdefault(name, []).append(f"data.{split}")
    return [
        f"group {name} is in {', '.join(splits[:-1])} and {splits[-1]}"
        for name, splits in sorted(splits_of.items())
        if len(splits) > 1
    ]


# ── .npz ──────────────────────────────────────────────────────────────────────────────────────────


def _from_npz(path: Path, file: str, groups: Sequence[str]) -> Iterator[Series | BadRow]:
    with open_archive(path, file) as archive:
        arrays = members(archive, file)
        names = list(dict.fromkeys(key[:-2] for key in arrays if _is_series_array(key)))
        _check_groups(groups, [_group(name) for name in names], file)
        first_width = _first_width(archive, arrays)
        for key in arrays:
            if not _is_series_array(key) and not groups:
                yield BadRow(f"{file}:{key}", "is neither NAME_x nor NAME_y; rename or remove the array")
        for name in names:
            if groups and _group(name) not in groups:
                continue
            try:
                yield _npz_series(archive, arrays, name, file, first_width)
            except BadSeries as bad:
                yield BadRow(f"{file}:{name}", str(bad))


def _is_series_array(key: str) -> bool:
    return len(key) > 2 and key.endswith(("_x", "_y"))


def _group(name: str) -> str:
    return name.partition("_")[0]


def _check_groups(groups: Sequence[str], known: Sequence[str], file: str) -> None:
    known = list(dict.fromkeys(known))
    for group in groups:
        if group not in known:
            listed = ", ".join(known[:_GROUPS_LISTED]) + (", ..." if len(known) > _GROUPS_LISTED else "")
            raise DataError(f"{file}: has no group '{group}'; correct the option 'groups' (known: {listed or 'none'})")


def _first_width(archive: zipfile.ZipFile, arrays: dict[str, zipfile.ZipInfo]) -> tuple[str, int]:
    """The first series of the file that has a valid width, and that width. All others must have the same."""
    for key, member in arrays.items():
        if _is_series_array(key) and key.endswith("_x"):
            try:
                shape = read_header(archive, member).shape
            except BadSeries:
                continue
            if len(shape) == 2 and shape[1]:
                return key[:-2], shape[1]
    return "", 0


def _npz_series(
    archive: zipfile.ZipFile, arrays: dict[str, zipfile.ZipInfo], name: str, file: str, first_width: tuple[str, int]
) -> Series:
    x, y = f"{name}_x", f"{name}_y"
    for missing, present in ((x, y), (y, x)):
        if missing not in arrays:
            raise BadSeries(f"has {present} but no {missing}; save both, or remove the series")
    header, labels = (checked_header(archive, arrays[key], f"{file}:{name}") for key in (x, y))
    _check_frames(x, header, first_width)
    _check_labels(y, labels, x, header.shape[0])
    numbers = read_array(archive, arrays[x])
    frames = float32(numbers)
    if bad := first_bad(numbers, frames):
        raise BadSeries("row {}, column {} {}".format(*bad))
    return Series(frames, _labels(y, read_array(archive, arrays[y])), f"{file}:{name}", _group(name))


def _check_frames(x: str, header: Header, first_width: tuple[str, int]) -> None:
    shape = header.shape
    if header.dtype.kind not in "fiub":
        raise BadSeries(f"{x} has data type {header.dtype}, not real numbers; save it as float32")
    if len(shape) != 2:
        hint = "x[:, None] adds the second axis" if len(shape) == 1 else "reshape it"
        raise BadSeries(f"{x} has shape {shape}, but must be [frames, values per frame]; {hint}")
    if not shape[0] or not shape[1]:
        raise BadSeries(f"{x} has {plural(shape[0], 'frame')} of {plural(shape[1], 'value')}; remove the series")
    name, width = first_width
    if shape[1] != width:
        raise BadSeries(
            f"{x} has {shape[1]} values per frame, but {name}_x has {width}; all series need the same number"
        )


def _check_labels(y: str, header: Header, x: str, frames: int) -> None:
    if header.dtype.kind not in "iuU":
        raise BadSeries(
            f"{y} has data type {header.dtype}, but labels are integers or strings; save y.astype(int) or y.astype(str)"
        )
    if len(header.shape) > 1:
        raise BadSeries(f"{y} has shape {header.shape}, but must be [frames] or a single label; reshape it")
    if header.shape and header.shape[0] != frames:
        raise BadSeries(
            f"{y} has {plural(header.shape[0], 'label')}, but {x} has {plural(frames, 'frame')}; "
            "save one label per frame, or a single one"
        )


def _labels(y: str, values: np.ndarray) -> tuple[str, ...] | str:
    if values.dtype.kind == "U":
        _check_unicode(y, values)
    distinct, ids = np.unique(values, return_inverse=True)
    names = [str(label) for label in distinct.tolist()]
    for name in names:
        for character, description in (("\n", "a newline"), ("\0", "a NUL character")):
            if character in name:
                raise BadSeries(f"{y} has the label {name!r}, which contains {description}; remove it")
    return tuple(names[i] for i in ids.tolist()) if values.ndim else names[0]


def _check_unicode(y: str, values: np.ndarray) -> None:
    """Check the code points: converting an invalid string would crash the interpreter."""
    codes = np.ascontiguousarray(values).reshape(-1).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
    first, last = _SURROGATES
    if ((codes > _LAST_CODE_POINT) | ((codes >= first) & (codes <= last))).any():
        raise BadSeries(f"{y} has a label that is not valid Unicode; save the labels again")


# ── text ──────────────────────────────────────────────────────────────────────────────────────────


def _from_text(path: Path, file: str, groups: Sequence[str]) -> Iterator[Series | BadRow]:
    if groups:
        raise DataError(
            f"{file}: text has no groups; remove the option 'groups', or save the series as .npz with arrays "
            "GROUP_NAME_x and GROUP_NAME_y"
        )
    width = 0
    for ordinal, lines in enumerate(blocks(path, file), start=1):
        series = _text_series(lines, file, f"{file}:series{ordinal}", width)
        if isinstance(series, Series):
            width = series.source.shape[1]
        yield series


def _text_series(lines: Iterator[tuple[int, str | BadRow]], file: str, location: str, width: int) -> Series | BadRow:
    """Parse the lines of a series. `width` is the width of the series before it, 0 for the first one."""
    values, labels, first = array("d"), [], 0
    for number, line in lines:
        if isinstance(line, BadRow):
            return line
        try:
            numbers, label = _frame(line, width)
        except ValueError as error:
            return BadRow(f"{file}:{number}", str(error))
        first, width = first or number, len(numbers)
        values.extend(numbers)
        labels.append(label)
    matrix = np.frombuffer(values).reshape(-1, width)
    frames = float32(matrix)
    if bad := first_bad(matrix, frames):
        return BadRow(f"{file}:{first + bad[0]}", f"column {bad[1]} {bad[2]}")
    return Series(frames, tuple(labels), location)


def _frame(line: str, width: int) -> tuple[list[float], str]:
    """The numbers and the label of a line. ValueError if it is not valid."""
    *texts, label = SEPARATOR.split(line.strip(" "))
    if not texts or not label:
        raise ValueError("has no label; write numbers and then a label, separated by commas, tabs or spaces")
    if width and len(texts) != width:
        raise ValueError(f"has {len(texts)} numbers, expected {width}; check that no number and no label is missing")
    return [number_of(text, column) for column, text in enumerate(texts)], label
