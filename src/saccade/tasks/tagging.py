"""Tagging: a label for each word of a sentence or each frame of a series."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
from torch import Tensor

from saccade.data.batches import NO_LABEL, Batch, Corpus
from saccade.data.source_codecs import SourceCodec, shortened
from saccade.data.sources.rows import Row, StepwiseRow
from saccade.errors import DataError, plural
from saccade.models.assemble import Model, Reads
from saccade.parts.token_costs import TokenCost
from saccade.places import Memory
from saccade.tasks.labeling import LabelCodecs, Labeling, label_spans
from saccade.tasks.losses import Loss, token_label_loss
from saccade.tasks.task import Encoded, ValidationSample
from saccade.tasks.windows import predict_windows


class Tagging(Labeling[StepwiseRow]):
    """Predicts a label for each word of a sentence or each frame of a series. A word's label is predicted from the
    word's first token."""

    command = "tag"
    reads: Reads = "encoder"
    rows: tuple[type, ...] = get_args(StepwiseRow)
    expects = "a label for each word or each frame"
    unit = "sequences"

    def accepts(self, row: Row) -> bool:
        return isinstance(row, self.rows) and isinstance(row.target, tuple)

    def row(
        self, codecs: LabelCodecs, source: object, target: str | Sequence[str] | None, location: str
    ) -> StepwiseRow:
        """The target may be a text of labels separated by spaces."""
        return codecs.source.stepwise_row(source, target.split() if isinstance(target, str) else target, location)

    def labels(self, row: StepwiseRow) -> Sequence[str]:
        return row.target

    def encode(self, rows: Sequence[StepwiseRow], codecs: LabelCodecs, longest: int) -> Encoded:
        """Sentences longer than `longest` tokens are left out; series are cut into windows of `longest` frames."""
        sources, targets, locations = [], [], []
        unlabeled = too_long = 0
        for row, (values, positions) in zip(rows, encode_steps(rows, codecs.source), strict=True):
            labels = np.full(len(values), NO_LABEL)
            labels[positions] = codecs.target.encode(row.target, row.location)
            if not codecs.source.can_cut and len(values) > longest:
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
        self, model: Model, codecs: LabelCodecs, rows: Sequence[StepwiseRow], longest: int, batch_tokens: int
    ) -> list[list[str]]:
        """A label for each word or frame. Sequences longer than `longest` are split into overlapping windows."""
        encoded = encode_steps(rows, codecs.source)
        outputs = predict_windows(model, [values for values, _ in encoded], longest, batch_tokens, _states, _argmax)
        tags = []
        for (_, positions), windows in zip(encoded, outputs, strict=True):
            kept = [w.output[w.window.keep_from - w.window.first : w.window.keep_to - w.window.first] for w in windows]
            tags.append(codecs.target.decode(np.concatenate(kept)[positions]) if kept else [])
        return tags

    def sample(self, codec: SourceCodec, row: StepwiseRow, predicted: Sequence[str]) -> ValidationSample:
        names, true = codec.step_names(row), self.labels(row)
        if names is None:
            return ValidationSample(codec.shown(row), _run_lengths(true), _run_lengths(predicted))
        return ValidationSample(codec.shown(row), _side_by_side(names, true), _side_by_side(names, predicted))


def _states(memory: Memory) -> Tensor:
    return memory.states


def _argmax(log_probs: Tensor) -> Tensor:
    return log_probs.argmax(-1)


def _run_lengths(labels: Sequence[str]) -> str:
    return shortened([f"{label or '?'}×{end - first}" for label, first, end in label_spans(labels)])


def _side_by_side(words: Sequence[str], labels: Sequence[str]) -> str:
    return shortened([f"{word}/{label or '?'}" for word, label in zip(words, labels, strict=True)])


def encode_steps(rows: Sequence[StepwiseRow], codec: SourceCodec) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each row the model's input, and the input position of each of its words or frames."""
    for row in rows:
        if len(row.source) != len(row.target):
            raise DataError(
                f"{row.location}: has {len(row.source):,} words or frames but {plural(len(row.target), 'label')}; give "
                "each one a label"
            )
    return codec.encode_steps(rows)
