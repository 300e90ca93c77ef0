"""What tagging and classification share: a head predicts labels from the encoder of text or of numeric series."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from saccade.config import Rate
from saccade.data.batches import COLLATE_LABELS, Batch, Collate
from saccade.data.codecs import Codecs, LabelCodec, Scaling, unknown_label
from saccade.data.sources.rows import Row, Series
from saccade.data.tokenizers import Tokenizer, TokenizerKind
from saccade.decode.engine import DecodeConfig
from saccade.errors import DataError, RunError
from saccade.metrics.labels import Confusion
from saccade.models.assemble import Model, Reads
from saccade.tasks.evaluation import (
    Evaluation,
    MetricScore,
    ScoredRow,
    best_and_worst,
    bootstrap_interval,
    scores_by_length,
    source_lengths,
)
from saccade.tasks.losses import Loss
from saccade.tasks.task import (
    DIVERGED,
    LOSS,
    Encoded,
    Metric,
    Validation,
    ValidationSample,
    file_of,
    sample_rows,
    summed_cost,
)

LabelCodecs = Codecs[Tokenizer | Scaling, LabelCodec]
MAX_WORDS_SHOWN = 20  # of a validation sample
ACCURACY = Metric("accuracy", "accuracy")
MACRO_F1 = Metric("macro_f1", "macro F1")


class Labeling(ABC):
    """A task that predicts labels."""

    reads: Reads  # the encoder's states or their summary
    collate: Collate = COLLATE_LABELS
    metrics: tuple[Metric, ...] = (LOSS, ACCURACY, MACRO_F1)
    best_metric = ACCURACY

    def __init__(self, *, smoothing: Rate = 0.0):
        self.smoothing = smoothing

    # ── defined by the subclass ──

    @abstractmethod
    def text(self, row: Any) -> str:
        """The text of a row, from which the tokenizer is learned."""

    @abstractmethod
    def labels(self, row: Any) -> Sequence[str]:
        """All labels of a row; "" where a word or frame has none."""

    @abstractmethod
    def encode(self, rows: Sequence[Any], codecs: LabelCodecs, longest: int) -> Encoded: ...

    def prepare(self, encoded: Encoded, report: Callable[[str], None]) -> None:  # noqa: B027 - part of the contract
        """Do nothing: labels need nothing besides the rows."""

    @abstractmethod
    def batch_loss(self, model: Model, batch: Batch, smoothing: float) -> Loss:
        """The loss of a batch with this label smoothing."""

    @abstractmethod
    def predict(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[Any], longest: int, batch_tokens: int
    ) -> list[list[str]]:
        """The predicted labels of each row, as many as the row has labels."""

    @abstractmethod
    def sample(self, row: Any, predicted: Sequence[str]) -> ValidationSample: ...

    # ── shared by both tasks ──

    def learn(self, rows: Iterable[Row], kind: TokenizerKind, joint: bool) -> LabelCodecs:
        labels = LabelCodec.learn(name for row in rows for name in self.labels(row))
        series = [row.source for row in rows if isinstance(row, Series)]
        return Codecs(Scaling.learn(series) if series else kind.learn(map(self.text, rows)), labels)

    def files(self, codecs: LabelCodecs) -> dict[str, bytes]:
        source = "scaling.json" if isinstance(codecs.source, Scaling) else "source.model"
        return {source: codecs.source.dump(), "labels.json": codecs.target.dump()}

    def read(self, files: Mapping[str, bytes], kind: TokenizerKind, joint: bool) -> LabelCodecs:
        labels = LabelCodec.read(file_of(files, "labels.json"))
        if "scaling.json" in files:
            return Codecs(Scaling.read(files["scaling.json"]), labels)
        return Codecs(kind.read(file_of(files, "source.model")), labels)

    def describe(self, codecs: LabelCodecs) -> str:
        unit = "values per frame" if isinstance(codecs.source, Scaling) else "source tokens"
        return f"{codecs.source.size:,} {unit} and {codecs.target.size:,} labels"

    def drop_unknown_labels(self, rows: Sequence[Any], codecs: LabelCodecs, skip_bad: bool) -> list[Any]:
        kept = []
        for row in rows:
            unknown = next((label for label in self.labels(row) if label not in codecs.target), None)
            if unknown is None:
                kept.append(row)
            elif not skip_bad:
                raise DataError(f"{row.location}: {unknown_label(unknown, codecs.target)}")
        return kept

    def loss(self, model: Model, batch: Batch) -> Loss:
        return self.batch_loss(model, batch, self.smoothing)

    def validate(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[Any], longest: int, decode: DecodeConfig
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
        return Validation(scores, tuple(self.sample(rows[i], predicted[i]) for i in sample_rows(len(rows))))

    def confusion(self, rows: Sequence[Any], predicted: Sequence[Sequence[str]]) -> Confusion:
        """The confusion matrix over all positions that have a true label."""
        true = [label for row in rows for label in self.labels(row)]
        return Confusion.of(true, [label for labels in predicted for label in labels])

    def evaluate(
        self, split: str, rows: Sequence[Any], predicted: Sequence[Sequence[str]], codec: Tokenizer | Scaling
    ) -> Evaluation:
        """Evaluate predicted labels; `codec` is the source's. Rows without a true label are left out."""
        labeled = [i for i, row in enumerate(rows) if any(self.labels(row))]
        if not labeled:
            raise DataError(
                f"data.{split}: no row has a label, so there are no scores; evaluate labeled data with "
                "Run.evaluate(pairs) in Python"
            )
        rows, predicted = [rows[i] for i in labeled], [predicted[i] for i in labeled]
        lengths, length_unit = source_lengths(rows, codec)
        confusion = self.confusion(rows, predicted)
        counts = _label_counts(confusion.labels, [self.labels(row) for row in rows], predicted)
        scored = []
        for row, labels, row_counts, length in zip(rows, predicted, counts, lengths, strict=True):
            sample = self.sample(row, labels)
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


def must_be_text(row: Any) -> None:
    """Raise an error if the row is numeric but the run was trained on text."""
    if isinstance(row, Series):
        raise DataError(f"{row.location}: is a numeric series, but the run was trained on text; give a text")


def must_be_frames(row: Any) -> None:
    if not isinstance(row, Series):
        raise DataError(
            f"{row.location}: is text, but the run was trained on numeric series; give an .npz file or another source "
            "of series"
        )


def label_spans(labels: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Runs of equal labels as (label, first, end)."""
    first = 0
    for label, same in groupby(labels):
        end = first + len(list(same))
        yield label, first, end
        first = end


def short(items: Sequence[str]) -> str:
    """The first items, joined by spaces."""
    return " ".join(items[:MAX_WORDS_SHOWN]) + (" …" if len(items) > MAX_WORDS_SHOWN else "")
