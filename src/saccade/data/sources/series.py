"""Series of numbers with labels: arrays of an .npz file, or text, a frame a line."""

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
    first_bad,
    float32,
    members,
    number_of,
    open_archive,
    read_array,
    read_header,
    sane_header,
)
from saccade.data.sources.rows import Fault, Frames, Row, existing
from saccade.errors import DataError

_GROUPS_SHOWN = 30
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


class LabeledSeries:
    """Frames of numbers with a label each, or one for all: `NAME_x` [T F] and `NAME_y` [T] or a single label in an
    .npz file; any other file is text, a frame a line with its label last, a blank line between two series.

    A series belongs to the group that its NAME up to the first "_" says (text: to none); `groups` takes only these.
    `window` cuts series into so many frames; the last piece may be shorter. `whole` makes one label of those of a
    series or window, the most frequent one; where most frames have none, it is left out. `unlabeled` is the label that
    means none. Rows, columns and frames in messages count from 0, lines from 1.
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
        """Give the one path."""
        return {"file": existing(self.folder, self.file, "file")}

    def rows(self) -> Iterator[Frames | Fault]:
        """Read series by series and cut each into windows."""
        path = self.files()["file"]
        packed = path.suffix.lower() == ".npz"
        for series in _from_npz(path, self.file, self.groups) if packed else _from_text(path, self.file, self.groups):
            if isinstance(series, Fault):
                yield series
            else:
                yield from self._cut(series)

    def _cut(self, series: Frames) -> Iterator[Frames]:
        labels = self._known(series.target)
        size = self.window or len(series.source)
        for first in range(0, len(series.source), size):
            target = labels if isinstance(labels, str) else labels[first : first + size]
            if self.whole and not isinstance(target, str):
                target = _most(target)
            if target != "":
                place = f"{series.location}:{first}" if self.window else series.location
                yield Frames(series.source[first : first + size], target, place, series.group)

    def _known(self, labels: tuple[str, ...] | str) -> tuple[str, ...] | str:
        if isinstance(labels, str):
            return "" if labels == self.unlabeled else labels
        return tuple("" if label == self.unlabeled else label for label in labels)


def _most(labels: Sequence[str]) -> str:
    """Give the most frequent label; of equals one that is a label at all, and of these the first."""
    counts = Counter(labels)
    return max(counts, key=lambda label: (counts[label], label != ""))


def leaks(splits: Mapping[str, Sequence[Row]]) -> list[str]:
    """Say which groups stand in two splits: "group u01 is in data.train and data.test"."""
    return shared_groups(
        {split: {row.group for row in rows if isinstance(row, Frames)} for split, rows in splits.items()}
    )


def shared_groups(groups: Mapping[str, Iterable[str]]) -> list[str]:
    """The same of the groups of each split."""
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


def _from_npz(path: Path, file: str, groups: Sequence[str]) -> Iterator[Frames | Fault]:
    with open_archive(path, file) as archive:
        arrays = members(archive, file)
        names = list(dict.fromkeys(key[:-2] for key in arrays if _is_half(key)))
        _must_hold(groups, [_group(name) for name in names], file)
        width = _usual_width(archive, arrays)
        for key in arrays:
            if not _is_half(key) and not groups:
                yield Fault(f"{file}:{key}", "is neither NAME_x nor NAME_y; rename the array, or take it out")
        for name in names:
            if groups and _group(name) not in groups:
                continue
            try:
                yield _series(archive, arrays, name, file, width)
            except BadSeries as bad:
                yield Fault(f"{file}:{name}", str(bad))


def _is_half(key: str) -> bool:
    return len(key) > 2 and key.endswith(("_x", "_y"))


def _group(name: str) -> str:
    return name.partition("_")[0]


def _must_hold(groups: Sequence[str], known: Sequence[str], file: str) -> None:
    known = list(dict.fromkeys(known))
    for group in groups:
        if group not in known:
            listed = ", ".join(known[:_GROUPS_SHOWN]) + (", ..." if len(known) > _GROUPS_SHOWN else "")
            raise DataError(f"{file}: has no group '{group}', which 'groups' asks for (known: {listed or 'none'})")


def _usual_width(archive: zipfile.ZipFile, arrays: dict[str, zipfile.ZipInfo]) -> tuple[str, int]:
    """Give the first series of the file whose frames have a width, and that width."""
    for key, member in arrays.items():
        if _is_half(key) and key.endswith("_x"):
            try:
                shape = read_header(archive, member).shape
            except BadSeries:
                continue
            if len(shape) == 2 and shape[1]:
                return key[:-2], shape[1]
    return "", 0


def _series(
    archive: zipfile.ZipFile, arrays: dict[str, zipfile.ZipInfo], name: str, file: str, usual: tuple[str, int]
) -> Frames:
    x, y = f"{name}_x", f"{name}_y"
    for one, other in ((x, y), (y, x)):
        if one not in arrays:
            raise BadSeries(f"has {other} but no {one}; save both, or take it out")
    header, labels = (sane_header(archive, arrays[half], f"{file}:{name}") for half in (x, y))
    _must_be_frames(x, header, usual)
    _must_be_labels(y, labels, x, header.shape[0])
    numbers = read_array(archive, arrays[x])
    frames = float32(numbers)
    if bad := first_bad(numbers, frames):
        raise BadSeries("row {}, column {} {}".format(*bad))
    return Frames(frames, _labels(y, read_array(archive, arrays[y])), f"{file}:{name}", _group(name))


def _must_be_frames(x: str, header: Header, usual: tuple[str, int]) -> None:
    shape = header.shape
    if header.kind.kind not in "fiub":
        raise BadSeries(f"{x} holds {header.kind}, not real numbers; save it as float32")
    if len(shape) != 2:
        hint = "x[:, None] makes a column of a list" if len(shape) == 1 else "reshape it"
        raise BadSeries(f"{x} has shape {shape}, but must be [frames, numbers a frame]; {hint}")
    if not shape[0] or not shape[1]:
        raise BadSeries(f"{x} has {shape[0]} frames of {shape[1]} numbers; take the series out")
    if shape[1] != usual[1]:
        raise BadSeries(f"{x} has {shape[1]} numbers a frame, but {usual[0]}_x has {usual[1]}; all must have the same")


def _must_be_labels(y: str, header: Header, x: str, frames: int) -> None:
    if header.kind.kind not in "iuU":
        raise BadSeries(
            f"{y} holds {header.kind}, but labels are whole numbers or strings; save y.astype(int) or (str)"
        )
    if len(header.shape) > 1:
        raise BadSeries(f"{y} has shape {header.shape}, but must be [frames], or a single label; reshape it")
    if header.shape and header.shape[0] != frames:
        raise BadSeries(
            f"{y} has {header.shape[0]} labels, but {x} has {frames} frames; give one for each, or one for all"
        )


def _labels(y: str, values: np.ndarray) -> tuple[str, ...] | str:
    if values.dtype.kind == "U":
        _must_be_text(y, values)
    kinds, at = np.unique(values, return_inverse=True)
    names = [str(kind) for kind in kinds.tolist()]
    for name in names:
        for character, what in (("\n", "a newline"), ("\0", "a NUL character")):
            if character in name:
                raise BadSeries(f"{y} has the label {name!r} with {what} in it; take it out")
    return tuple(names[i] for i in at.tolist()) if values.ndim else names[0]


def _must_be_text(y: str, values: np.ndarray) -> None:
    """Python dies of strings that are no Unicode, so look at their numbers before it does."""
    codes = np.ascontiguousarray(values).reshape(-1).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
    first, last = _SURROGATES
    if ((codes > _LAST_CHARACTER) | ((codes >= first) & (codes <= last))).any():
        raise BadSeries(f"{y} has a label that is not Unicode text; write the labels again")


# ── text ──────────────────────────────────────────────────────────────────────────────────────────


def _from_text(path: Path, file: str, groups: Sequence[str]) -> Iterator[Frames | Fault]:
    _must_hold(groups, [], file)
    width = 0
    for ordinal, lines in enumerate(blocks(path, file), start=1):
        series = _text_series(lines, file, f"{file}:series{ordinal}", width)
        if isinstance(series, Frames):
            width = series.source.shape[1]
        yield series


def _text_series(lines: Iterator[tuple[int, str | Fault]], file: str, place: str, width: int) -> Frames | Fault:
    """Make a series of its lines; `width` is that of the series before, 0 if there is none."""
    values, labels, first = array("d"), [], 0
    for number, line in lines:
        if isinstance(line, Fault):
            return line
        try:
            numbers, label = _frame(line, width)
        except ValueError as error:
            return Fault(f"{file}:{number}", str(error))
        first, width = first or number, len(numbers)
        values.extend(numbers)
        labels.append(label)
    matrix = np.frombuffer(values).reshape(-1, width)
    frames = float32(matrix)
    if bad := first_bad(matrix, frames):
        return Fault(f"{file}:{first + bad[0]}", f"column {bad[1]} {bad[2]}")
    return Frames(frames, tuple(labels), place)


def _frame(line: str, width: int) -> tuple[list[float], str]:
    """Give the numbers and the label of a line; a ValueError says why there are none."""
    *texts, label = SEPARATOR.split(line.strip(" "))
    if not texts or not label:
        raise ValueError("has no label; write numbers, then a label, parted by commas, tabs or spaces")
    if width and len(texts) != width:
        raise ValueError(f"has {len(texts)} numbers where {width} are usual; is one missing, or the label?")
    return [number_of(text, column) for column, text in enumerate(texts)], label
