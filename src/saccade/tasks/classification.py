"""Classification: one label for a whole text or series."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from saccade.data.batches import NO_LABEL, Batch, Corpus
from saccade.data.codecs import Scaling
from saccade.data.flat_rows import FlatRows
from saccade.data.sources.rows import Pair, Row, Series
from saccade.data.tokenizers import Tokenizer
from saccade.models.assemble import Model, Reads
from saccade.places import Memory
from saccade.tasks.labeling import LabelCodecs, Labeling, must_be_frames, must_be_text, short
from saccade.tasks.losses import Loss, sequence_label_loss
from saccade.tasks.task import Encoded, ValidationSample, counts_of, kept_rows
from saccade.tasks.windows import WindowOutput, predict_windows

TextOrSeries = Pair | Series  # `Series` with one label for the whole series


class Classification(Labeling):
    """Predicts one label for a text or a series from the encoder's summary."""

    command = "classify"
    reads: Reads = "summary"
    rows: tuple[type, ...] = (Pair, Series)
    expects = "one label for each text or series"
    unit = "sequences"
    text_sides = ("source",)
    encodes_text_alone = True

    def accepts(self, row: Row) -> bool:
        return isinstance(row, Pair) or (isinstance(row, Series) and isinstance(row.target, str))

    def text(self, row: Pair) -> str:
        return row.source

    def labels(self, row: TextOrSeries) -> Sequence[str]:
        assert isinstance(row.target, str)
        return (row.target,)

    def encode(self, rows: Sequence[TextOrSeries], codecs: LabelCodecs, longest: int) -> Encoded:
        """Sequences that are empty, unlabeled or longer than `longest` tokens or frames are left out."""
        sources = FlatRows.of(encode_items(rows, codecs.source))
        targets = FlatRows.of([codecs.target.encode(self.labels(row), row.location) for row in rows])
        left_out = self.left_out(sources, targets, longest)
        kept = kept_rows(left_out)
        corpus = Corpus(sources.take(kept), targets.take(kept), self.collate)
        return Encoded(corpus, tuple(rows[i].location for i in np.flatnonzero(kept).tolist()), counts_of(left_out))

    def left_out(self, sources: FlatRows, targets: FlatRows, longest: int) -> dict[str, np.ndarray]:
        return {
            "empty or without a label": (sources.lengths == 0) | (targets.values == NO_LABEL),
            "too long": sources.lengths > longest,
        }

    def batch_loss(self, model: Model, batch: Batch, smoothing: float) -> Loss:
        return sequence_label_loss(model, batch, smoothing)

    def probabilities(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[TextOrSeries], longest: int, batch_tokens: int
    ) -> list[np.ndarray]:
        """The probabilities [labels] of each row; an empty array for an empty row."""
        values = encode_items(rows, codecs.source)
        outputs = predict_windows(model, values, longest, batch_tokens, _summary, Tensor.exp)
        return [_average_windows(windows) for windows in outputs]

    def predict(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[TextOrSeries], longest: int, batch_tokens: int
    ) -> list[list[str]]:
        """The most probable label; "" for an empty row."""
        probabilities = self.probabilities(model, codecs, rows, longest, batch_tokens)
        return [[codecs.target.names[p.argmax()] if len(p) else ""] for p in probabilities]

    def sample(self, row: TextOrSeries, predicted: Sequence[str]) -> ValidationSample:
        source = row.location if isinstance(row, Series) else short(row.source.split())
        return ValidationSample(source, self.labels(row)[0], predicted[0])


def _summary(memory: Memory) -> Tensor:
    assert memory.summary is not None
    return memory.summary


def _average_windows(windows: Sequence[WindowOutput]) -> np.ndarray:
    """The mean probabilities over the windows of a sequence, weighted by the number of positions kept from each."""
    if not windows:
        return np.zeros(0)
    kept = np.array([w.window.keep_to - w.window.keep_from for w in windows], dtype=np.float64)
    return np.average([w.output.astype(np.float64) for w in windows], axis=0, weights=kept)


def encode_items(rows: Sequence[TextOrSeries], codec: Tokenizer | Scaling) -> list[np.ndarray]:
    """The model's input of each row: token ids or scaled frames."""
    if isinstance(codec, Scaling):
        return [_frames(row, codec) for row in rows]
    for row in rows:
        must_be_text(row)
    texts = [row.source for row in rows if isinstance(row, Pair)]
    return [np.array(ids, dtype=np.int64) for ids in codec.encode(texts)]


def _frames(row: TextOrSeries, codec: Scaling) -> np.ndarray:
    must_be_frames(row)
    return codec.scaled(np.asarray(row.source), row.location)
