"""Codecs: what stands between raw data and what a model reads and says. They are learned on the training rows and
stored in the run: a tokenizer for text, a scaling for numbers, the names of labels."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from saccade.data.batches import NO_LABEL
from saccade.errors import DataError, RunError

Reads = TypeVar("Reads")
Says = TypeVar("Says")

MAX_LABELS_LISTED = 20  # labels in a message


@dataclass(frozen=True)
class Codecs(Generic[Reads, Says]):
    """One for each side; with a joint vocabulary they are the same object."""

    source: Reads
    target: Says


class LabelCodec:
    """The names of labels. "" is the name of none."""

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self.size = len(self.names)
        self._ids = {name: i for i, name in enumerate(self.names)} | {"": NO_LABEL}

    @classmethod
    def learn(cls, names: Iterable[str]) -> "LabelCodec":
        found = sorted({*names} - {""})
        if not found:
            raise DataError("data.train: no row has a label; there is nothing to learn")
        return cls(found)

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def __str__(self) -> str:
        more = f" and {self.size - MAX_LABELS_LISTED:,} more" if self.size > MAX_LABELS_LISTED else ""
        return ", ".join(self.names[:MAX_LABELS_LISTED]) + more

    def encode(self, names: Sequence[str], place: str) -> np.ndarray:
        """The numbers of labels; an unknown one is an error that names `place`."""
        for name in names:
            if name not in self:
                raise DataError(f"{place}: {unknown_label(name, self)}")
        return np.array([self._ids[name] for name in names], dtype=np.int64)

    def decode(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        return [self.names[i] for i in ids]

    def dump(self) -> bytes:
        return json.dumps(self.names, ensure_ascii=False).encode()

    @classmethod
    def read(cls, data: bytes) -> "LabelCodec":
        names = _json(data, "the labels")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            raise RunError("the labels are not a list of names")
        if len({*names}) < len(names):
            raise RunError("the labels hold a name twice")
        return cls(names)


def unknown_label(label: str, labels: LabelCodec) -> str:
    """Why a label cannot be used."""
    return (
        f"the label '{label}' does not occur in training (known: {labels}); mend it, or set `data.skip_bad = true` "
        "to leave such rows out"
    )


class Scaling:
    """Brings each column of a series to mean 0 and standard deviation 1, as measured on the training frames. A column
    that never changes there is only shifted."""

    def __init__(self, mean: np.ndarray, deviation: np.ndarray):
        self.mean, self.deviation = mean, deviation
        self.size = len(mean)

    @classmethod
    def learn(cls, series: Sequence[np.ndarray]) -> "Scaling":
        full = [frames for frames in series if len(frames)]
        if not full:
            raise DataError("data.train: every series is empty; there is nothing to learn")
        count = sum(map(len, full))
        mean = np.sum([frames.sum(0, dtype=np.float64) for frames in full], 0) / count
        spread = np.sum([np.square(frames - mean).sum(0) for frames in full], 0) / count
        constant = np.max([f.max(0) for f in full], 0) == np.min([f.min(0) for f in full], 0)
        deviation = np.where(constant, 1.0, np.sqrt(spread))
        if not (np.isfinite(mean).all() and np.isfinite(deviation).all() and deviation.all()):
            raise DataError("data.train: the numbers of a column are too large or too small to be scaled")
        return cls(mean, deviation)

    def scaled(self, frames: np.ndarray, place: str) -> np.ndarray:
        """Frames [T F] as a model reads them."""
        if frames.ndim != 2 or frames.shape[1] != self.size:
            found = f"{frames.shape[1]} numbers" if frames.ndim == 2 else f"the shape {list(frames.shape)}"
            raise DataError(f"{place}: {found} a frame, but the run was trained on {self.size} numbers a frame")
        return ((frames - self.mean) / self.deviation).astype(np.float32)

    def dump(self) -> bytes:
        return json.dumps({"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}).encode()

    @classmethod
    def read(cls, data: bytes) -> "Scaling":
        tree = _json(data, "the scaling")
        if not isinstance(tree, dict) or tree.keys() != {"mean", "deviation"}:
            raise RunError("the scaling is not a table of mean and deviation")
        mean, deviation = _numbers(tree["mean"]), _numbers(tree["deviation"])
        if len(mean) != len(deviation) or not (deviation > 0).all():
            raise RunError("the scaling's deviations do not go with its means")
        return cls(mean, deviation)


def _json(data: bytes, what: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise RunError(f"{what} cannot be read: {error}") from None


def _numbers(values: Any) -> np.ndarray:
    right = isinstance(values, list) and values and all(type(v) in (int, float) for v in values)
    numbers = np.array(values if right else [np.nan], dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise RunError("the scaling is not a list of finite numbers for each column")
    return numbers
