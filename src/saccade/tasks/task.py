"""What every task has: rows of data become batches, a model of them a loss, its outputs figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from saccade.data.batches import Batch, Collate, Corpus, by_length
from saccade.data.codecs import Codecs
from saccade.data.sources.rows import Row
from saccade.data.tokenizers import TokenizerKind
from saccade.decode.engine import DecodeConfig
from saccade.errors import DataError, RunError
from saccade.models.assemble import Model
from saccade.tasks.losses import Loss

VALIDATION_SAMPLES = 3


@dataclass(frozen=True)
class Encoded:
    """Rows that can be trained on, and how many were left out for which reason."""

    corpus: Corpus
    locations: tuple[str, ...]  # file:line of each row
    left_out: dict[str, int]


@dataclass(frozen=True)
class ValidationSample:
    """One of the rows shown at every validation."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Validation:
    """Figures by name, and the same few samples each time."""

    figures: dict[str, float]
    samples: tuple[ValidationSample, ...]


class Task(Protocol):
    """The contract. Keyword-only constructor parameters are the options a user may set."""

    command: str  # what to call a trained run with
    rows: tuple[type, ...]  # what it learns from
    expects: str  # the same in words
    unit: str  # what a row is called
    writes: bool  # by a decoder; else a head reads the encoder
    collate: Collate
    figures: tuple[str, ...]  # of a validation
    best_figure: str  # the figure that finds the best checkpoint, if the user does not say which

    def accepts(self, row: Row) -> bool:
        """Whether the task can learn from a row like this."""
        ...

    def learn(self, rows: Sequence[Any], kind: TokenizerKind, joint: bool) -> Codecs[Any, Any]:
        """The codecs of the training rows; `kind` makes tokenizers, one for both sides if `joint`."""
        ...

    def files(self, codecs: Codecs[Any, Any]) -> dict[str, bytes]:
        """What a run stores of them."""
        ...

    def read(self, files: Mapping[str, bytes], kind: TokenizerKind, joint: bool) -> Codecs[Any, Any]: ...

    def describe(self, codecs: Codecs[Any, Any]) -> str:
        """Their sizes, in words."""
        ...

    def drop_unknown_labels(self, rows: Sequence[Any], codecs: Codecs[Any, Any], skip_bad: bool) -> list[Any]:
        """The rows that ask for nothing training has not seen; without `skip_bad` the others are an error."""
        ...

    def encode(self, rows: Sequence[Any], codecs: Codecs[Any, Any], longest: int) -> Encoded: ...
    def prepare(self, encoded: Encoded, say: Callable[[str], None]) -> None:
        """Find out what else there is to learn from these rows; `say` how far it is."""
        ...

    def loss(self, model: Model, batch: Batch) -> Loss: ...

    def validate(
        self, model: Model, codecs: Codecs[Any, Any], rows: Sequence[Any], longest: int, decode: DecodeConfig
    ) -> Validation: ...


def check_rows(task: Task, rows: Sequence[Row], split: str) -> None:
    """Refuse rows of another task."""
    wrong = next((row for row in rows if not task.accepts(row)), None)
    if wrong is not None:
        raise DataError(
            f"data.{split}: {wrong.location}: the task needs {task.expects}, and this row is something else"
        )


def file_of(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise RunError(f"there is no {name}")
    return files[name]


def chosen(count: int) -> range:
    """Which rows are shown at a validation."""
    return range(0, count, max(1, count // VALIDATION_SAMPLES))[:VALIDATION_SAMPLES]


@torch.inference_mode()
def summed_cost(
    model: Model,
    corpus: Corpus,
    batch_tokens: int,
    loss: Callable[[Model, Batch, float], Loss],
    rows: Sequence[int] | None = None,
) -> tuple[float, int]:
    """The summed cost of what some rows (or all) should say, and how much that is; without smoothing."""
    was_training = model.training
    model.eval()
    batches = by_length(corpus, np.arange(len(corpus)) if rows is None else np.array(rows), batch_tokens)
    try:
        losses = [loss(model, corpus.batch(batch.tolist()), 0.0) for batch in batches]
    finally:
        model.train(was_training)
    return sum(each.shown["cost"] for each in losses), sum(each.count for each in losses)
