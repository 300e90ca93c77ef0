"""The contract of a task: rows → batches, model and batch → loss, model outputs → scores."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from saccade.data.batches import Batch, Collate, Corpus, by_length
from saccade.data.codecs import Codecs
from saccade.data.flat_rows import FlatRows
from saccade.data.sources.rows import Row
from saccade.data.tokenizers import TokenizerKind
from saccade.decode.engine import DecodeConfig
from saccade.errors import DataError, RunError
from saccade.models.assemble import Model, Reads
from saccade.tasks.losses import Loss

VALIDATION_SAMPLES = 3


@dataclass(frozen=True)
class Metric:
    """A metric that every validation of a task computes. `key` is its name in the config and the logs, `title` its
    name in the report."""

    key: str
    title: str
    higher_is_better: bool = True

    def is_better(self, score: float, than: float) -> bool:
        return score > than if self.higher_is_better else score < than


DIVERGED = "the model's output is NaN or infinite: training diverged; train again with a lower train.schedule.rate"
LOSS = Metric("loss", "loss", higher_is_better=False)


@dataclass(frozen=True)
class Encoded:
    """Rows encoded for training, and the number of rows that were left out for each reason."""

    corpus: Corpus
    locations: Sequence[str]  # file:line of each row
    left_out: dict[str, int]


@dataclass(frozen=True)
class ValidationSample:
    """One of the rows that are shown at every validation."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Validation:
    """The scores of a validation by metric key, and samples of the same rows each time."""

    scores: dict[str, float]
    samples: tuple[ValidationSample, ...]


class Task(Protocol):
    """What a model is trained for. The keyword-only constructor parameters are the options of the config."""

    command: str  # the CLI command, and the method of Run, that uses a trained run
    rows: tuple[type, ...]  # the row types it is trained on
    expects: str  # the same in words, for error messages
    unit: str  # what a row is called in messages
    reads: Reads  # what the head reads; "decoder" for a task that generates text
    collate: Collate
    metrics: tuple[Metric, ...]  # of a validation
    best_metric: Metric  # selects the best checkpoint unless train.best_by names another one

    def accepts(self, row: Row) -> bool:
        """Whether the task can be trained on this row."""
        ...

    def learn(self, rows: Iterable[Any], kind: TokenizerKind, joint: bool) -> Codecs[Any, Any]:
        """Learn the codecs from the training rows: tokenizers of this kind (one for both sides if `joint`), the scaling
        of numeric series, the label set. The rows are iterated once or several times."""
        ...

    def files(self, codecs: Codecs[Any, Any]) -> dict[str, bytes]:
        """The codecs as files of the run folder."""
        ...

    def read(self, files: Mapping[str, bytes], kind: TokenizerKind, joint: bool) -> Codecs[Any, Any]:
        """The inverse of `files`."""
        ...

    def describe(self, codecs: Codecs[Any, Any]) -> str:
        """The vocabulary sizes in words."""
        ...

    def drop_unknown_labels(self, rows: Sequence[Any], codecs: Codecs[Any, Any], skip_bad: bool) -> list[Any]:
        """The rows all of whose labels occur in the training data. Without `skip_bad` any other row is an error."""
        ...

    def encode(self, rows: Sequence[Any], codecs: Codecs[Any, Any], longest: int) -> Encoded:
        """Encode rows for training; sequences longer than `longest` are left out or cut."""
        ...

    def prepare(self, encoded: Encoded, report: Callable[[str], None]) -> None:
        """Compute what training needs besides the rows, such as word alignments; `report` takes progress messages."""
        ...

    def loss(self, model: Model, batch: Batch) -> Loss:
        """The training loss of a batch, summed over its tokens or labels."""
        ...

    def validate(
        self, model: Model, codecs: Codecs[Any, Any], rows: Sequence[Any], longest: int, decode: DecodeConfig
    ) -> Validation:
        """Compute all `metrics` on the development rows."""
        ...


@runtime_checkable
class PairTask(Protocol):
    """What a task adds so that its training pairs can be encoded in blocks and stored in the cache."""

    text_sides: tuple[Literal["source", "target"], ...]  # the other side is a label

    @property
    def encodes_text_alone(self) -> bool:
        """Whether training needs nothing of a pair but the ids of its texts and its label."""
        ...

    def left_out(self, sources: FlatRows, targets: FlatRows, longest: int) -> dict[str, np.ndarray]:
        """For each reason to leave rows out of training, the rows [rows] that it applies to."""
        ...


def kept_rows(left_out: Mapping[str, np.ndarray]) -> np.ndarray:
    """The rows [rows] that no reason applies to."""
    return ~np.any([*left_out.values()], axis=0)


def counts_of(left_out: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The number of rows that each reason applies to."""
    return {reason: int(rows.sum()) for reason, rows in left_out.items()}


def generates(task: Task) -> bool:
    """Whether the task generates text, for which its model needs a decoder."""
    return task.reads == "decoder"


def check_rows(task: Task, rows: Sequence[Row], split: str) -> None:
    """Raise an error that names the first row that the task cannot be trained on."""
    wrong = next((row for row in rows if not task.accepts(row)), None)
    if wrong is not None:
        raise DataError(
            f"data.{split}: {wrong.location}: the task needs {task.expects}, but this row has other data; correct the "
            "row, or set `task` to one that fits the data"
        )


def file_of(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise RunError(f"the file {name} is missing")
    return files[name]


def sample_rows(count: int) -> range:
    """The row numbers that are shown at every validation."""
    return range(0, count, max(1, count // VALIDATION_SAMPLES))[:VALIDATION_SAMPLES]


@torch.inference_mode()
def summed_cost(
    model: Model,
    corpus: Corpus,
    batch_tokens: int,
    loss: Callable[[Model, Batch, float], Loss],
    rows: Sequence[int] | None = None,
) -> tuple[float, int]:
    """The cross-entropy without label smoothing, summed over the targets of some rows (default: all), and the number
    of targets."""
    was_training = model.training
    model.eval()
    batches = by_length(corpus, np.arange(len(corpus)) if rows is None else np.array(rows), batch_tokens)
    try:
        losses = [loss(model, corpus.batch(batch.tolist()), 0.0) for batch in batches]
    finally:
        model.train(was_training)
    return sum(result.logged["cost"] for result in losses), sum(result.count for result in losses)
