"""Source codecs: what differs between text and numeric series where a model reads the sources of rows. A further kind
of source, such as images, is one class here and one line in SOURCE_CODECS; the tasks stay as they are."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import ClassVar

import numpy as np

from saccade.data.codecs import Scaling, file_of
from saccade.data.frames import as_frames
from saccade.data.sources.rows import Pair, Row, Series, StepwiseRow, Tagged, WholeRow
from saccade.data.tokenizers import UNKNOWN, Tokenizer, TokenizerKind
from saccade.errors import DataError
from saccade.inputs import Frames, Input, Tokens

MAX_WORDS_SHOWN = 20  # of a source or of its labels


class SourceCodec(ABC):
    """Encodes the sources of rows. A source is read as a whole, or step by step if it has steps: the words of a text,
    the frames of a series."""

    file_name: ClassVar[str]  # in the run folder
    placeholder: ClassVar[Input]  # `input` with an arbitrary size, before the codec is learned
    learning: ClassVar[str]  # what `learn` does, for a progress message
    size_unit: ClassVar[str]  # what `size` counts
    can_cut: ClassVar[bool]  # whether a long source may be cut into windows for training

    @property
    @abstractmethod
    def size(self) -> int: ...

    @property
    @abstractmethod
    def input(self) -> Input: ...

    @classmethod
    @abstractmethod
    def learn(cls, rows: Iterable[Row], kind: TokenizerKind) -> "SourceCodec":
        """Learn from the training rows; `kind` is the tokenizer of text."""

    @classmethod
    @abstractmethod
    def read(cls, data: bytes, kind: TokenizerKind) -> "SourceCodec":
        """The inverse of `dump`."""

    @abstractmethod
    def dump(self) -> bytes: ...

    @abstractmethod
    def row(self, source: object, target: str, location: str) -> WholeRow:
        """A row of a source given in Python and one target. DataError with `location` if the source does not fit."""

    @abstractmethod
    def encode(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """What the model reads of each row."""

    @abstractmethod
    def lengths(self, rows: Sequence[Row]) -> tuple[list[int], str]:
        """The length of each source, and the unit of the lengths."""

    @abstractmethod
    def shown(self, row: Row) -> str:
        """The source as a short text."""

    # ── step by step ──

    @abstractmethod
    def stepwise_row(self, source: object, targets: Sequence[str] | None, location: str) -> StepwiseRow:
        """As `row`, with a target for each step; None: with no target for any."""

    @abstractmethod
    def encode_steps(self, rows: Sequence[StepwiseRow]) -> list[tuple[np.ndarray, np.ndarray]]:
        """What the model reads of each row, and the position of each step in it."""

    def step_names(self, row: StepwiseRow) -> Sequence[str] | None:
        """The steps as texts; None if they are numbers."""
        return None


class TextCodec(SourceCodec):
    """Encodes texts, and sentences as words, with a tokenizer."""

    file_name = "source.model"
    placeholder = Tokens(8)
    learning = "learning the tokenizer"
    size_unit = "source tokens"
    can_cut = False  # a cut sentence would lose the context of its words

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer

    @property
    def size(self) -> int:
        return self.tokenizer.size

    @property
    def input(self) -> Tokens:
        return self.tokenizer.input

    @classmethod
    def learn(cls, rows: Iterable[Row], kind: TokenizerKind) -> "TextCodec":
        return cls(kind.learn(map(_text, rows)))

    @classmethod
    def read(cls, data: bytes, kind: TokenizerKind) -> "TextCodec":
        return cls(kind.read(data))

    def dump(self) -> bytes:
        return self.tokenizer.dump()

    def row(self, source: object, target: str, location: str) -> Pair:
        if not isinstance(source, str):
            raise DataError(f"{location}: is not text, but the run was trained on text; give a string")
        return Pair(source, target, location)

    def stepwise_row(self, source: object, targets: Sequence[str] | None, location: str) -> Tagged:
        items = source.split() if isinstance(source, str) else source
        words = [item for item in items if isinstance(item, str)] if isinstance(items, Iterable) else []
        if not isinstance(items, Sized) or len(words) < len(items):
            raise DataError(
                f"{location}: is not text, but the run was trained on text; give a string or a list of words"
            )
        return Tagged(tuple(words), ("",) * len(words) if targets is None else tuple(targets), location)

    def encode(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return [np.array(ids, dtype=np.int64) for ids in self.tokenizer.encode([_text(row) for row in rows])]

    def encode_steps(self, rows: Sequence[StepwiseRow]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The token ids of all words, and the position of the first token of each word."""
        sentences = [_words(row) for row in rows]
        words = sorted({word for sentence in sentences for word in sentence})
        tokens = dict(zip(words, self.tokenizer.encode(words), strict=True))
        return [_joined([tokens[word] or [UNKNOWN] for word in sentence]) for sentence in sentences]

    def lengths(self, rows: Sequence[Row]) -> tuple[list[int], str]:
        texts = [row.source for row in rows if isinstance(row, Pair)]
        if len(texts) == len(rows):
            return [len(ids) for ids in self.tokenizer.encode(texts)], "tokens"
        return [len(row.source) for row in rows], "words"

    def shown(self, row: Row) -> str:
        return shortened(_words(row))

    def step_names(self, row: StepwiseRow) -> Sequence[str] | None:
        return _words(row)


def _text(row: Row) -> str:
    return row.source if isinstance(row, Pair) else " ".join(_words(row))


def _words(row: Row) -> Sequence[str]:
    """The words of a row; an error if it is numeric."""
    if isinstance(row, Series):
        raise DataError(f"{row.location}: is a numeric series, but the run was trained on text; give a text")
    return row.source.split() if isinstance(row, Pair) else row.source


def _joined(words: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([token for word in words for token in word], dtype=np.int64)
    starts = np.cumsum([0, *(len(word) for word in words)], dtype=np.int64)[:-1]
    return ids, starts


def shortened(items: Sequence[str]) -> str:
    """The first items, joined by spaces."""
    return " ".join(items[:MAX_WORDS_SHOWN]) + (" …" if len(items) > MAX_WORDS_SHOWN else "")


class SeriesCodec(SourceCodec):
    """Encodes numeric series [T F] as scaled frames."""

    file_name = "scaling.json"
    placeholder = Frames(8)
    learning = "measuring mean and deviation of the series"
    size_unit = "values per frame"
    can_cut = True

    def __init__(self, scaling: Scaling):
        self.scaling = scaling

    @property
    def size(self) -> int:
        return self.scaling.size

    @property
    def input(self) -> Frames:
        return Frames(self.scaling.size)

    @classmethod
    def learn(cls, rows: Iterable[Row], kind: TokenizerKind) -> "SeriesCodec":
        return cls(Scaling.learn([_frames(row) for row in rows]))

    @classmethod
    def read(cls, data: bytes, kind: TokenizerKind) -> "SeriesCodec":
        return cls(Scaling.read(data))

    def dump(self) -> bytes:
        return self.scaling.dump()

    def row(self, source: object, target: str, location: str) -> Series:
        return Series(as_frames(source, self.size, location), target, location)

    def stepwise_row(self, source: object, targets: Sequence[str] | None, location: str) -> Series:
        frames = as_frames(source, self.size, location)
        return Series(frames, ("",) * len(frames) if targets is None else tuple(targets), location)

    def encode(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return [self.scaling.scaled(_frames(row), row.location) for row in rows]

    def encode_steps(self, rows: Sequence[StepwiseRow]) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(self.scaling.scaled(_frames(row), row.location), np.arange(len(row.source))) for row in rows]

    def lengths(self, rows: Sequence[Row]) -> tuple[list[int], str]:
        return [len(row.source) for row in rows], "frames"

    def shown(self, row: Row) -> str:
        return row.location


def _frames(row: Row) -> np.ndarray:
    """The frames of a row; an error if it is text."""
    if not isinstance(row, Series):
        raise DataError(
            f"{row.location}: is text, but the run was trained on numeric series; give an .npz file or another source "
            "of series"
        )
    return np.asarray(row.source)


SOURCE_CODECS: dict[type, type[SourceCodec]] = {Pair: TextCodec, Tagged: TextCodec, Series: SeriesCodec}  # by row type


def read_source_codec(files: Mapping[str, bytes], kind: TokenizerKind) -> SourceCodec:
    """The source codec whose file is among those of a run."""
    codec = next((codec for codec in SOURCE_CODECS.values() if codec.file_name in files), TextCodec)
    return codec.read(file_of(files, codec.file_name), kind)
