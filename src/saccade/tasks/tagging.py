"""Tagging: a label for each word of a sentence or each frame of a series."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from saccade.data.batches import NO_LABEL, Batch, Corpus
from saccade.data.codecs import Scaling
from saccade.data.sources.rows import Row, Series, Tagged
from saccade.data.tokenizers import UNKNOWN, Tokenizer
from saccade.errors import DataError, plural
from saccade.models.assemble import Model, Reads
from saccade.parts.token_costs import TokenCost
from saccade.places import Memory
from saccade.tasks.labeling import LabelCodecs, Labeling, label_spans, must_be_frames, must_be_text, short
from saccade.tasks.losses import Loss, token_label_loss
from saccade.tasks.task import Encoded, ValidationSample
from saccade.tasks.windows import predict_windows

TaggedOrSeries = Tagged | Series  # `Series` with a label for each frame


class Tagging(Labeling):
    """Predicts a label for each word of a sentence or each frame of a series. A word's label is predicted from the
    word's first token."""

    command = "tag"
    reads: Reads = "encoder"
    rows: tuple[type, ...] = (Tagged, Series)
    expects = "a label for each word or each frame"
    unit = "sequences"

    def accepts(self, row: Row) -> bool:
        return isinstance(row, Tagged) or (isinstance(row, Series) and isinstance(row.target, tuple))

    def text(self, row: TaggedOrSeries) -> str:
        return " ".join(row.source)

    def labels(self, row: TaggedOrSeries) -> Sequence[str]:
        return row.target

    def encode(self, rows: Sequence[TaggedOrSeries], codecs: LabelCodecs, longest: int) -> Encoded:
        """Sentences longer than `longest` tokens are left out; series are cut into windows of `longest` frames."""
        sources, targets, locations = [], [], []
        unlabeled = too_long = 0
        for row, (values, positions) in zip(rows, encode_words_or_frames(rows, codecs.source), strict=True):
            labels = np.full(len(values), NO_LABEL)
            labels[positions] = codecs.target.encode(row.target, row.location)
            if isinstance(row, Tagged) and len(values) > longest:
                too_long += 1
                continue
            starts = [start for start in range(0, len(values), longest) if (labels[start : start + longest] >= 0).any()]
            unlabeled += not starts
            sources += [values[start : start + longest] for start in starts]
            targets += [labels[start : start + longest] for start in starts]
            locations += [f"{row.location}, frame {start}" if start else row.location for start in starts]
        left_out = {"without a label": unlabeled, "too long": too_long}
        return Encoded(Corpus(sources, targets, self.collate), tuple(locations), left_out)

    def batch_loss(self, model: Model, batch: Batch, cost: TokenCost) -> Loss:
        return token_label_loss(model, batch, cost)

    def predict(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[TaggedOrSeries], longest: int, batch_tokens: int
    ) -> list[list[str]]:
        """A label for each word or frame. Sequences longer than `longest` are split into overlapping windows."""
        encoded = encode_words_or_frames(rows, codecs.source)
        outputs = predict_windows(model, [values for values, _ in encoded], longest, batch_tokens, _states, _argmax)
        tags = []
        for (_, positions), windows in zip(encoded, outputs, strict=True):
            kept = [w.output[w.window.keep_from - w.window.first : w.window.keep_to - w.window.first] for w in windows]
            tags.append(codecs.target.decode(np.concatenate(kept)[positions]) if kept else [])
        return tags

    def sample(self, row: TaggedOrSeries, predicted: Sequence[str]) -> ValidationSample:
        if isinstance(row, Series):
            return ValidationSample(row.location, _run_lengths(row.target), _run_lengths(predicted))
        words = row.source
        return ValidationSample(short(words), _side_by_side(words, row.target), _side_by_side(words, predicted))


def _states(memory: Memory) -> Tensor:
    return memory.states


def _argmax(log_probs: Tensor) -> Tensor:
    return log_probs.argmax(-1)


def _run_lengths(labels: Sequence[str]) -> str:
    return short([f"{label or '?'}×{end - first}" for label, first, end in label_spans(labels)])


def _side_by_side(words: Sequence[str], labels: Sequence[str]) -> str:
    return short([f"{word}/{label or '?'}" for word, label in zip(words, labels, strict=True)])


def encode_words_or_frames(
    rows: Sequence[TaggedOrSeries], codec: Tokenizer | Scaling
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each row the model's input, and the input position of each of its words or frames."""
    for row in rows:
        if len(row.source) != len(row.target):
            raise DataError(
                f"{row.location}: has {len(row.source):,} words or frames but {plural(len(row.target), 'label')}; give "
                "each one a label"
            )
    if isinstance(codec, Scaling):
        return [(_frames(row, codec), np.arange(len(row.source))) for row in rows]
    for row in rows:
        must_be_text(row)
    words = sorted({word for row in rows for word in row.source})
    tokens = dict(zip(words, codec.encode(words), strict=True))
    return [_join_words([tokens[word] or [UNKNOWN] for word in row.source]) for row in rows]


def _frames(row: TaggedOrSeries, codec: Scaling) -> np.ndarray:
    must_be_frames(row)
    return codec.scaled(np.asarray(row.source), row.location)


def _join_words(words: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The token ids of all words, and the position of the first token of each word."""
    ids = np.array([token for word in words for token in word], dtype=np.int64)
    starts = np.cumsum([0, *(len(word) for word in words)], dtype=np.int64)[:-1]
    return ids, starts
