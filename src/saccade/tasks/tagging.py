"""Tagging: a label for each word of a sentence or each frame of a series."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from saccade.data.batches import NO_LABEL, Batch, Corpus
from saccade.data.codecs import Scaling
from saccade.data.sources.rows import Frames, Row, Tagged
from saccade.data.tokenizers import UNKNOWN, Tokenizer
from saccade.errors import DataError
from saccade.models.assemble import Model
from saccade.places import Memory
from saccade.tasks.labeling import LabelCodecs, Labeling, must_be_frames, must_be_text, runs, short
from saccade.tasks.losses import Loss, token_labels
from saccade.tasks.task import Encoded, ValidationSample
from saccade.tasks.windows import read_windows

TaggedOrSeries = Tagged | Frames  # `Frames` with a label for each frame


class Tagging(Labeling):
    """A sentence or a series → a label for each of its steps. The first piece of a word speaks for it."""

    command = "tag"
    rows: tuple[type, ...] = (Tagged, Frames)
    expects = "a label for each word or each frame"
    unit = "sequences"

    def accepts(self, row: Row) -> bool:
        return isinstance(row, Tagged) or (isinstance(row, Frames) and isinstance(row.target, tuple))

    def text(self, row: TaggedOrSeries) -> str:
        return " ".join(row.source)

    def labels(self, row: TaggedOrSeries) -> Sequence[str]:
        return row.target

    def encode(self, rows: Sequence[TaggedOrSeries], codecs: LabelCodecs, longest: int) -> Encoded:
        """Sentences of at most `longest` pieces; series in windows of `longest` frames."""
        sources, targets, places = [], [], []
        without = too_long = 0
        for row, (values, at) in zip(rows, read_steps(rows, codecs.source), strict=True):
            labels = np.full(len(values), NO_LABEL)
            labels[at] = codecs.target.encode(row.target, row.location)
            if isinstance(row, Tagged) and len(values) > longest:
                too_long += 1
                continue
            cuts = [first for first in range(0, len(values), longest) if (labels[first : first + longest] >= 0).any()]
            without += not cuts
            sources += [values[first : first + longest] for first in cuts]
            targets += [labels[first : first + longest] for first in cuts]
            places += [f"{row.location}, step {first}" if first else row.location for first in cuts]
        left_out = {"without a label": without, "too long": too_long}
        return Encoded(Corpus(sources, targets, self.collate), tuple(places), left_out)

    def cost(self, model: Model, batch: Batch, smoothing: float) -> Loss:
        return token_labels(model, batch, smoothing)

    def predict(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[TaggedOrSeries], longest: int, batch_tokens: int
    ) -> list[list[str]]:
        """A label for each step, however long the sequence is."""
        steps = read_steps(rows, codecs.source)
        seen = read_windows(model, [values for values, _ in steps], longest, batch_tokens, _states, _likeliest)
        tags = []
        for (_, at), windows in zip(steps, seen, strict=True):
            said = [w.output[w.window.keep_from - w.window.first : w.window.keep_to - w.window.first] for w in windows]
            tags.append(codecs.target.decode(np.concatenate(said)[at]) if said else [])
        return tags

    def sample(self, row: TaggedOrSeries, found: Sequence[str]) -> ValidationSample:
        if isinstance(row, Frames):
            return ValidationSample(row.location, _run_lengths(row.target), _run_lengths(found))
        words = row.source
        return ValidationSample(short(words), _side_by_side(words, row.target), _side_by_side(words, found))


def _states(memory: Memory) -> Tensor:
    return memory.states


def _likeliest(log_probs: Tensor) -> Tensor:
    """The number of the likeliest label of each place."""
    return log_probs.argmax(-1)


def _run_lengths(labels: Sequence[str]) -> str:
    return short([f"{label or '?'}×{end - first}" for label, first, end in runs(labels)])


def _side_by_side(words: Sequence[str], labels: Sequence[str]) -> str:
    return short([f"{word}/{label or '?'}" for word, label in zip(words, labels, strict=True)])


def read_steps(rows: Sequence[TaggedOrSeries], codec: Tokenizer | Scaling) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each row as a model reads it, and where in it each of its steps stands."""
    for row in rows:
        if len(row.source) != len(row.target):
            raise DataError(f"{row.location}: has {len(row.source):,} steps but {len(row.target):,} labels")
    if isinstance(codec, Scaling):
        return [(_frames(row, codec), np.arange(len(row.source))) for row in rows]
    for row in rows:
        must_be_text(row)
    words = sorted({word for row in rows for word in row.source})
    pieces = dict(zip(words, codec.encode(words), strict=True))
    return [_pieces([pieces[word] or [UNKNOWN] for word in row.source]) for row in rows]


def _frames(row: TaggedOrSeries, codec: Scaling) -> np.ndarray:
    must_be_frames(row)
    return codec.scaled(np.asarray(row.source), row.location)


def _pieces(words: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of all words in a row, and where each word begins."""
    ids = np.array([piece for word in words for piece in word], dtype=np.int64)
    begins = np.cumsum([0, *(len(word) for word in words)], dtype=np.int64)[:-1]
    return ids, begins
