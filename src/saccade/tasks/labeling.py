"""What tagging and classification share: a head reads labels off an encoder, of text or of series of numbers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from saccade.config import Rate
from saccade.data.batches import COLLATE_LABELS, Batch, Collate
from saccade.data.codecs import Codecs, LabelCodec, Scaling, unknown_label
from saccade.data.sources.rows import Frames, Row
from saccade.data.tokenizers import Tokenizer, TokenizerKind
from saccade.decode.engine import DecodeConfig
from saccade.errors import DataError, RunError
from saccade.metrics.labels import Confusion
from saccade.models.assemble import Model
from saccade.tasks.losses import Loss
from saccade.tasks.task import Encoded, Validation, ValidationSample, chosen, file_of, summed_cost

LabelCodecs = Codecs[Tokenizer | Scaling, LabelCodec]
MAX_WORDS_SHOWN = 20  # words or runs of a sample


class Labeling(ABC):
    """A task that says labels."""

    writes = False
    collate: Collate = COLLATE_LABELS
    figures: tuple[str, ...] = ("loss", "accuracy", "macro_f1")
    best_figure = "accuracy"

    def __init__(self, *, smoothing: Rate = 0.0):
        self.smoothing = smoothing

    # ── what the two do in their own ways ──

    @abstractmethod
    def text(self, row: Any) -> str:
        """What a tokenizer learns from."""

    @abstractmethod
    def labels(self, row: Any) -> Sequence[str]:
        """All labels of a row."""

    @abstractmethod
    def encode(self, rows: Sequence[Any], codecs: LabelCodecs, longest: int) -> Encoded: ...

    def prepare(self, encoded: Encoded, say: Callable[[str], None]) -> None:
        del encoded, say  # there is nothing but the labels

    @abstractmethod
    def cost(self, model: Model, batch: Batch, smoothing: float) -> Loss: ...

    @abstractmethod
    def predict(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[Any], longest: int, batch_tokens: int
    ) -> list[list[str]]:
        """For each of the labels of each row what the model says instead."""

    @abstractmethod
    def sample(self, row: Any, found: Sequence[str]) -> ValidationSample: ...

    # ── what they share ──

    def learn(self, rows: Sequence[Row], kind: TokenizerKind, joint: bool) -> LabelCodecs:
        labels = LabelCodec.learn(name for row in rows for name in self.labels(row))
        series = [row.source for row in rows if isinstance(row, Frames)]
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
        unit = "numbers a frame" if isinstance(codecs.source, Scaling) else "source tokens"
        return f"{codecs.source.size:,} {unit} and {codecs.target.size:,} labels"

    def drop_unknown_labels(self, rows: Sequence[Any], codecs: LabelCodecs, skip_bad: bool) -> list[Any]:
        known = []
        for row in rows:
            strange = next((name for name in self.labels(row) if name not in codecs.target), None)
            if strange is None:
                known.append(row)
            elif not skip_bad:
                raise DataError(f"{row.location}: {unknown_label(strange, codecs.target)}")
        return known

    def loss(self, model: Model, batch: Batch) -> Loss:
        return self.cost(model, batch, self.smoothing)

    def validate(
        self, model: Model, codecs: LabelCodecs, rows: Sequence[Any], longest: int, decode: DecodeConfig
    ) -> Validation:
        """Cost per label without smoothing, and how many of the labels are right."""
        corpus = self.encode(rows, codecs, longest).corpus
        cost, count = summed_cost(model, corpus, decode.batch_tokens, self.cost)
        if not math.isfinite(cost):
            raise RunError("the model's probabilities are not finite; train anew with a lower train.schedule.rate")
        found = self.predict(model, codecs, rows, longest, decode.batch_tokens)
        judged = self.confusion(rows, found)
        figures = {
            "loss": cost / max(1, count),
            "accuracy": judged.accuracy(),
            "macro_f1": judged.macro_f1(),
        }
        return Validation(figures, tuple(self.sample(rows[i], found[i]) for i in chosen(len(rows))))

    def confusion(self, rows: Sequence[Any], found: Sequence[Sequence[str]]) -> Confusion:
        """What was said where there is a label."""
        true = [label for row in rows for label in self.labels(row)]
        return Confusion.of(true, [label for labels in found for label in labels])


def must_be_text(row: Any) -> None:
    """Refuse numbers where text was trained on."""
    if isinstance(row, Frames):
        raise DataError(f"{row.location}: is a series of numbers, but the run was trained on text")


def must_be_frames(row: Any) -> None:
    if not isinstance(row, Frames):
        raise DataError(f"{row.location}: is text, but the run was trained on series of numbers")


def runs(labels: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Equal labels in a row as (label, first, end)."""
    first = 0
    for label, same in groupby(labels):
        end = first + len(list(same))
        yield label, first, end
        first = end


def short(items: Sequence[str]) -> str:
    """The first of them."""
    return " ".join(items[:MAX_WORDS_SHOWN]) + (" …" if len(items) > MAX_WORDS_SHOWN else "")
