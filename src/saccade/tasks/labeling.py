"""What tagging and classification share: a head predicts labels from the encoder of text or of numeric series."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from saccade.config import Rate
from saccade.data.batches import COLLATE_LABELS, Batch, Collate
from saccade.data.codecs import Codecs, LabelCodec, file_of, unknown_label
from saccade.data.source_codecs import SOURCE_CODECS, SourceCodec, read_source_codec
from saccade.data.tokenizers import TokenizerKind
from saccade.decode.engine import DecodeConfig
from saccade.errors import DataError, RunError
from saccade.metrics.labels import Confusion, score_lines
from saccade.models.assemble import Model
from saccade.parts.token_costs import TokenCost
from saccade.tasks.evaluation import (
    Evaluation,
    MetricScore,
    ScoredRow,
    best_and_worst,
    bootstrap_interval,
    scores_by_length,
)
from saccade.tasks.losses import Loss
from saccade.tasks.task import (
    DIVERGED,
    LOSS,
    EvaluationOptions,
    Metric,
    RowType,
    Task,
    TrainedModel,
    Validation,
    ValidationSample,
    sample_rows,
    summed_cost,
)

LabelCodecs = Codecs[SourceCodec, LabelCodec]
ACCURACY = Metric("accuracy", "accuracy")
MACRO_F1 = Metric("macro_f1", "macro F1")


class Labeling(Task[RowType, LabelCodecs]):
    """A task that predicts labels."""

    does = "predicts labels"
    row_score = "the percentage of correct labels"
    has_labels = True
    collate: Collate = COLLATE_LABELS
    metrics: tuple[Metric, ...] = (LOSS, ACCURACY, MACRO_F1)
    best_metric = ACCURACY

    def __init__(self, *, smoothing: Rate = 0.0):
        self.token_cost = TokenCost(smoothing)

    # ── defined by the subclass ──

    @abstractmethod
    def labels(self, row: RowType) -> Sequence[str]:
        """All labels of a row; "" where a word or frame has none."""

    @abstractmethod
    def batch_loss(self, model: Model, batch: Batch, cost: TokenCost) -> Loss:
        """The loss of a batch with this cost of a label."""

    @abstractmethod
    def predict(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[RowType], longest: int, batch_tokens: int
    ) -> list[list[str]]:
        """The predicted labels of each row, as many as the row has labels."""

    @abstractmethod
    def sample(self, codec: SourceCodec, row: RowType, predicted: Sequence[str]) -> ValidationSample: ...

    # ── shared by both tasks ──

    def learn(self, rows: Iterable[RowType], kind: TokenizerKind, joint: bool) -> LabelCodecs:
        labels = LabelCodec.learn(name for row in rows for name in self.labels(row))
        return Codecs(SOURCE_CODECS[type(next(iter(rows)))].learn(rows, kind), labels)

    def files(self, codecs: LabelCodecs) -> dict[str, bytes]:
        return {codecs.source.file_name: codecs.source.dump(), "labels.json": codecs.target.dump()}

    def read(self, files: Mapping[str, bytes], kind: TokenizerKind, joint: bool) -> LabelCodecs:
        labels = LabelCodec.read(file_of(files, "labels.json"))
        return Codecs(read_source_codec(files, kind), labels)

    def describe(self, codecs: LabelCodecs) -> str:
        return f"{codecs.source.size:,} {codecs.source.size_unit} and {codecs.target.size:,} labels"

    def drop_unknown_labels(self, rows: Sequence[RowType], codecs: LabelCodecs, skip_bad: bool) -> list[RowType]:
        kept = []
        for row in rows:
            unknown = next((label for label in self.labels(row) if label not in codecs.target), None)
            if unknown is None:
                kept.append(row)
            elif not skip_bad:
                raise DataError(f"{row.location}: {unknown_label(unknown, codecs.target)}")
        return kept

    def loss(self, model: Model, batch: Batch) -> Loss:
        return self.batch_loss(model, batch, self.token_cost)

    def validate(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[RowType], longest: int, decode: DecodeConfig
    ) -> Validation:
        """Cross-entropy per label without smoothing, accuracy and macro F1."""
        corpus = self.encode(rows, codecs, longest).corpus
        cost, count = summed_cost(model, corpus, decode.batch_tokens, self.batch_loss)
        if not math.isfinite(cost):
            raise RunError(DIVERGED)
        predicted = self.predict(model, codecs, rows, longest, decode.batch_tokens)
        confusion = self.confusion(rows, predicted)
        scores = {
            LOSS.key: cost / max(1, count),
            ACCURACY.key: confusion.accuracy(),
            MACRO_F1.key: confusion.macro_f1(),
        }
        return Validation(
            scores, tuple(self.sample(codecs.source, rows[i], predicted[i]) for i in sample_rows(len(rows)))
        )

    def confusion(self, rows: Sequence[RowType], predicted: Sequence[Sequence[str]]) -> Confusion:
        """The confusion matrix over all positions that have a true label."""
        true = [label for row in rows for label in self.labels(row)]
        return Confusion.of(true, [label for labels in predicted for label in labels])

    def _predict(self, run: TrainedModel[LabelCodecs], rows: Sequence[RowType]) -> list[list[str]]:
        return self.predict(run.model, run.codecs, rows, run.longest, run.decode.batch_tokens)

    def predict_lines(self, run: TrainedModel[LabelCodecs], rows: Sequence[RowType]) -> list[str]:
        return [" ".join(labels) for labels in self._predict(run, rows)]

    def evaluate(
        self, run: TrainedModel[LabelCodecs], rows: Sequence[RowType], options: EvaluationOptions
    ) -> dict[str, Any]:
        for label in options.labels:
            if label not in run.codecs.target.names:
                raise DataError(f"labels: there is no label '{label}' (known: {run.codecs.target})")
        confusion = self.confusion(rows, self._predict(run, rows))
        return confusion.plain() | {
            "accuracy": confusion.accuracy(options.labels),
            "macro_f1": confusion.macro_f1(options.labels),
            "selected_labels": list(options.labels),
            "count": confusion.count(options.labels),
        }

    def score_lines(self, scores: Mapping[str, Any]) -> list[str]:
        return score_lines(scores)

    def evaluate_for_report(self, run: TrainedModel[LabelCodecs], rows: Sequence[RowType], split: str) -> Evaluation:
        """Rows without a true label are left out."""
        predicted, codec = self._predict(run, rows), run.codecs.source
        labeled = [i for i, row in enumerate(rows) if any(self.labels(row))]
        if not labeled:
            raise DataError(
                f"data.{split}: no row has a label, so there are no scores; evaluate labeled data with "
                "Run.evaluate(pairs) in Python"
            )
        rows, predicted = [rows[i] for i in labeled], [predicted[i] for i in labeled]
        lengths, length_unit = codec.lengths(rows)
        confusion = self.confusion(rows, predicted)
        counts = _label_counts(confusion.labels, [self.labels(row) for row in rows], predicted)
        scored = []
        for row, labels, row_counts, length in zip(rows, predicted, counts, lengths, strict=True):
            sample = self.sample(codec, row, labels)
            scored.append(ScoredRow(sample.source, sample.reference, sample.output, _accuracy(row_counts), length))
        best, worst = best_and_worst(scored)
        return Evaluation(
            split=split,
            rows=len(rows),
            length_unit=length_unit,
            scores=(
                MetricScore("Accuracy, %", _accuracy(counts.sum(0)), bootstrap_interval(counts, _accuracy)),
                MetricScore("Macro F1, %", _macro_f1(counts.sum(0)), bootstrap_interval(counts, _macro_f1)),
            ),
            best=best,
            worst=worst,
            lengths=scores_by_length(lengths, lambda chosen: {"accuracy": _accuracy(counts[list(chosen)].sum(0))}),
            labels=confusion.labels,
            counts=tuple(map(tuple, confusion.counts.tolist())),
        )


def _label_counts(
    labels: Sequence[str], true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> np.ndarray:
    """For each row and label the number of correct predictions, true labels and predictions: [rows, 3, labels]."""
    index = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(true), 3, len(labels)), dtype=np.int64)
    for row, (true_labels, predicted_labels) in enumerate(zip(true, predicted, strict=True)):
        for actual, guess in zip(true_labels, predicted_labels, strict=True):
            if actual:
                counts[row, 0, index[actual]] += actual == guess
                counts[row, 1, index[actual]] += 1
                counts[row, 2, index[guess]] += 1
    return counts


def _accuracy(counts: np.ndarray) -> float:
    return 100 * float(counts[0].sum() / counts[1].sum())


def _macro_f1(counts: np.ndarray) -> float:
    correct, total = counts[0], counts[1] + counts[2]
    return 100 * float((2 * correct[total > 0] / total[total > 0]).mean())


def label_spans(labels: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Runs of equal labels as (label, first, end)."""
    first = 0
    for label, same in groupby(labels):
        end = first + len(list(same))
        yield label, first, end
        first = end
