"""Classification: one label for a whole text or series."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
from torch import Tensor

from saccade.data.batches import NO_LABEL, Batch, Corpus
from saccade.data.flat_rows import FlatRows
from saccade.data.source_codecs import SourceCodec, TextCodec
from saccade.data.sources.rows import Row, WholeRow
from saccade.data.tokenizers import Tokenizer
from saccade.models.assemble import Model, Reads
from saccade.parts.token_costs import TokenCost
from saccade.places import Memory
from saccade.tasks.labeling import LabelCodecs, Labeling
from saccade.tasks.losses import Loss, sequence_label_loss
from saccade.tasks.task import Encoded, PairTask, Side, ValidationSample, counts_of, kept_rows
from saccade.tasks.windows import WindowOutput, predict_windows


class Classification(Labeling[WholeRow], PairTask[WholeRow, LabelCodecs]):
    """Predicts one label for a text or a series from the encoder's summary."""

    command = "classify"
    reads: Reads = "summary"
    rows: tuple[type, ...] = get_args(WholeRow)
    expects = "one label for each text or series"
    unit = "sequences"

    def accepts(self, row: Row) -> bool:
        return isinstance(row, self.rows) and isinstance(row.target, str)

    def row(self, codecs: LabelCodecs, source: object, target: str | None, location: str) -> WholeRow:
        return codecs.source.row(source, "" if target is None else target, location)

    def labels(self, row: WholeRow) -> Sequence[str]:
        assert isinstance(row.target, str)
        return (row.target,)

    def encode(self, rows: Sequence[WholeRow], codecs: LabelCodecs, longest: int) -> Encoded:
        """Sequences that are empty, unlabeled or longer than `longest` tokens or frames are left out."""
        sources = FlatRows.of(codecs.source.encode(rows))
        targets = self.encode_labels(rows, codecs)
        left_out = self.left_out(sources, targets, longest)
        kept = kept_rows(left_out)
        corpus = Corpus(sources.take(kept), targets.take(kept), self.collate)
        return Encoded(corpus, tuple(rows[i].location for i in np.flatnonzero(kept).tolist()), counts_of(left_out))

    def tokenizers(self, codecs: LabelCodecs) -> dict[Side, Tokenizer]:
        assert isinstance(codecs.source, TextCodec)
        return {"source": codecs.source.tokenizer}

    def encode_labels(self, rows: Sequence[WholeRow], codecs: LabelCodecs) -> FlatRows:
        return FlatRows.of([codecs.target.encode(self.labels(row), row.location) for row in rows])

    def left_out(self, sources: FlatRows, targets: FlatRows, longest: int) -> dict[str, np.ndarray]:
        return {
            "empty or without a label": (sources.lengths == 0) | (targets.values == NO_LABEL),
            "too long": sources.lengths > longest,
        }

    def batch_loss(self, model: Model, batch: Batch, cost: TokenCost) -> Loss:
        return sequence_label_loss(model, batch, cost)

    def probabilities(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[WholeRow], longest: int, batch_tokens: int
    ) -> list[np.ndarray]:
        """The probabilities [labels] of each row; an empty array for an empty row."""
        values = codecs.source.encode(rows)
        outputs = predict_windows(model, values, longest, batch_tokens, _summary, Tensor.exp)
        return [_average_windows(windows) for windows in outputs]

    def predict(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[WholeRow], longest: int, batch_tokens: int
    ) -> list[list[str]]:
        """The most probable label; "" for an empty row."""
        probabilities = self.probabilities(model, codecs, rows, longest, batch_tokens)
        return [[codecs.target.names[p.argmax()] if len(p) else ""] for p in probabilities]

    def sample(self, codec: SourceCodec, row: WholeRow, predicted: Sequence[str]) -> ValidationSample:
        return ValidationSample(codec.shown(row), self.labels(row)[0], predicted[0])


def _summary(memory: Memory) -> Tensor:
    assert memory.summary is not None
    return memory.summary


def _average_windows(windows: Sequence[WindowOutput]) -> np.ndarray:
    """The mean probabilities over the windows of a sequence, weighted by the number of positions kept from each."""
    if not windows:
        return np.zeros(0)
    kept = np.array([w.window.keep_to - w.window.keep_from for w in windows], dtype=np.float64)
    return np.average([w.output.astype(np.float64) for w in windows], axis=0, weights=kept)
