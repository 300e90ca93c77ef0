"""Codecs convert between raw data and the inputs and outputs of a model: a tokenizer for text, a scaling for numeric
series, the names of labels. They are learned from the training rows and stored in the run folder."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from saccade.data.batches import NO_LABEL
from saccade.errors import DataError, RunError
from saccade.inputs import Input

_Source = TypeVar("_Source", covariant=True)
_Target = TypeVar("_Target", covariant=True)

MAX_LABELS_LISTED = 20  # in a message


@dataclass(frozen=True)
class Codecs(Generic[_Source, _Target]):
    """The codecs of source and target. With a joint vocabulary, both are the same object."""

    source: _Source
    target: _Target


class InputCodec(Protocol):
    """What a model must know of the codec of its sources, and the bytes by which two codecs are compared."""

    @property
    def input(self) -> Input: ...
    def dump(self) -> bytes: ...


class OutputCodec(Protocol):
    """What a model must know of the codec of its targets: the number of tokens or labels; and the bytes by which two
    codecs are compared."""

    @property
    def size(self) -> int: ...
    def dump(self) -> bytes: ...


AnyCodecs = Codecs[InputCodec, OutputCodec]


def file_of(files: Mapping[str, bytes], name: str) -> bytes:
    """The content of one of the files in which codecs are stored."""
    if name not in files:
        raise RunError(f"the file {name} is missing")
    return files[name]


class LabelCodec:
    """Converts between label names and ids. The name "" means no label: its id is NO_LABEL."""

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self.size = len(self.names)
        self._ids = {name: i for i, name in enumerate(self.names)} | {"": NO_LABEL}

    @classmethod
    def learn(cls, names: Iterable[str]) -> "LabelCodec":
        labels = sorted({*names} - {""})
        if not labels:
            raise DataError("data.train: no row has a label; label some rows, and check the options of the source")
        return cls(labels)

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def __str__(self) -> str:
        more = f" and {self.size - MAX_LABELS_LISTED:,} more" if self.size > MAX_LABELS_LISTED else ""
        return ", ".join(self.names[:MAX_LABELS_LISTED]) + more

    def encode(self, names: Sequence[str], location: str) -> np.ndarray:
        """The ids of labels. DataError with `location` if one is unknown."""
        for name in names:
            if name not in self:
                raise DataError(f"{location}: {unknown_label(name, self)}")
        return np.array([self._ids[name] for name in names], dtype=np.int64)

    def decode(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        return [self.names[i] for i in ids]

    def dump(self) -> bytes:
        return json.dumps(self.names, ensure_ascii=False).encode()

    @classmethod
    def read(cls, data: bytes) -> "LabelCodec":
        names = _parse_json(data, "the labels")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            raise RunError("the labels are damaged: expected a list of names")
        if len({*names}) < len(names):
            raise RunError("the labels are damaged: a name is listed twice")
        return cls(names)


def unknown_label(label: str, labels: LabelCodec) -> str:
    """The error message for a label that does not occur in the training data."""
    return (
        f"the label '{label}' does not occur in the training data (known: {labels}); correct it, or leave the row out "
        "(for data of the recipe, with `data.skip_bad = true`)"
    )


class Scaling:
    """Scales each column of a series to mean 0 and standard deviation 1, measured on the training frames. A column that
    is constant there is only shifted."""

    def __init__(self, mean: np.ndarray, deviation: np.ndarray):
        self.mean, self.deviation = mean, deviation
        self.size = len(mean)

    @classmethod
    def learn(cls, series: Sequence[np.ndarray]) -> "Scaling":
        nonempty = [frames for frames in series if len(frames)]
        if not nonempty:
            raise DataError("data.train: every series is empty; give series with frames")
        count = sum(map(len, nonempty))
        mean = np.sum([frames.sum(0, dtype=np.float64) for frames in nonempty], 0) / count
        variance = np.sum([np.square(frames - mean).sum(0) for frames in nonempty], 0) / count
        constant = np.max([f.max(0) for f in nonempty], 0) == np.min([f.min(0) for f in nonempty], 0)
        deviation = np.where(constant, 1.0, np.sqrt(variance))
        if not (np.isfinite(mean).all() and np.isfinite(deviation).all() and deviation.all()):
            column = int(np.argmin(np.isfinite(mean) & np.isfinite(deviation) & (deviation > 0)))
            raise DataError(
                f"data.train: the values of column {column} are too large or too small to be standardized; rescale them"
            )
        return cls(mean, deviation)

    def scaled(self, frames: np.ndarray, location: str) -> np.ndarray:
        """Scale frames [T F] for the model."""
        if frames.ndim != 2 or frames.shape[1] != self.size:
            actual = f"{frames.shape[1]} values per frame" if frames.ndim == 2 else f"shape {list(frames.shape)}"
            raise DataError(f"{location}: has {actual}, but the run was trained on {self.size} values per frame")
        return ((frames - self.mean) / self.deviation).astype(np.float32)

    def dump(self) -> bytes:
        return json.dumps({"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}).encode()

    @classmethod
    def read(cls, data: bytes) -> "Scaling":
        tree = _parse_json(data, "the scaling")
        if not isinstance(tree, dict) or tree.keys() != {"mean", "deviation"}:
            raise RunError("the scaling is damaged: expected a table with mean and deviation")
        mean, deviation = _finite_array(tree["mean"]), _finite_array(tree["deviation"])
        if len(mean) != len(deviation) or not (deviation > 0).all():
            raise RunError("the scaling is damaged: expected a positive deviation for each mean")
        return cls(mean, deviation)


def _parse_json(data: bytes, name: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise RunError(f"{name} cannot be read: {error}") from None


def _finite_array(values: Any) -> np.ndarray:
    is_numeric = isinstance(values, list) and values and all(type(v) in (int, float) for v in values)
    array = np.array(values if is_numeric else [np.nan], dtype=np.float64)
    if not np.isfinite(array).all():
        raise RunError("the scaling is damaged: expected a list of finite numbers, one for each column")
    return array
