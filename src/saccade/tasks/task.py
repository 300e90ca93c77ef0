"""The contract of a task: rows → batches, model and batch → loss, model outputs → scores."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch

from saccade.data.batches import Batch, Collate, Corpus, by_length
from saccade.data.flat_rows import FlatRows
from saccade.data.sources.rows import Row
from saccade.data.tokenizers import Tokenizer, TokenizerKind
from saccade.decode.engine import DecodeConfig, Engine
from saccade.devices import device_of
from saccade.errors import DataError
from saccade.models.assemble import Model, ModelConfig, Reads
from saccade.parts.token_costs import CROSS_ENTROPY, TokenCost
from saccade.tasks.evaluation import Evaluation, MetricScore
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


Side = Literal["source", "target"]
RowType = TypeVar("RowType", bound=Row)
CodecsType = TypeVar("CodecsType")


@dataclass(frozen=True)
class TrainedModel(Generic[CodecsType]):
    """A trained model with its codecs and its settings, as a task evaluates and uses it. `longest` is data.longest,
    `decode` are the settings of the recipe. `engine` opens the engine that generates text from text."""

    model: Model
    codecs: CodecsType
    longest: int
    decode: DecodeConfig
    engine: Callable[[], Engine]


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of `Run.evaluate`. `labels`: count only these true labels; empty means all."""

    decode: DecodeConfig
    labels: tuple[str, ...] = ()


class Task(ABC, Generic[RowType, CodecsType]):
    """What a model is trained for. A task is a class in a file of this folder and a line in the table TASKS. The
    keyword-only parameters of its constructor are the options of the config. A task must define the abstract methods;
    the other ones have a default."""

    command: str  # the CLI command that uses a trained run
    does: str  # what it does with a source, for messages: "this run translates"
    rows: tuple[type, ...]  # the row types it is trained on
    expects: str  # the same in words, for messages
    unit: str  # what a row is called in messages
    reads: Reads  # what the head reads; "decoder" for a task that generates text
    collate: Collate
    metrics: tuple[Metric, ...]  # of a validation
    best_metric: Metric  # selects the best checkpoint unless train.best_by names another one
    token_cost = CROSS_ENTROPY  # of a target in training
    row_score = ""  # what `ScoredRow.score` is, for the report
    text_to_text = False  # whether it generates a text from a text, so that search settings and text files apply
    has_labels = False  # whether the targets are labels

    # ── rows and codecs ──

    def accepts(self, row: Row) -> bool:
        """Whether the task can be trained on this row."""
        return isinstance(row, self.rows)

    @abstractmethod
    def row(self, codecs: CodecsType, source: Any, target: Any, location: str) -> RowType:
        """The row of a source and a target given in Python, as a data source would yield it. The target is None if it
        is not known. DataError with `location` if the source does not fit."""

    @abstractmethod
    def learn(self, rows: Iterable[RowType], kind: TokenizerKind, joint: bool) -> CodecsType:
        """Learn the codecs from the training rows: tokenizers of this kind (one for both sides if `joint`), the scaling
        of numeric series, the label set. The rows are iterated once or several times."""

    @abstractmethod
    def files(self, codecs: CodecsType) -> dict[str, bytes]:
        """The codecs as files of the run folder."""

    @abstractmethod
    def read(self, files: Mapping[str, bytes], kind: TokenizerKind, joint: bool) -> CodecsType:
        """The inverse of `files`."""

    @abstractmethod
    def describe(self, codecs: CodecsType) -> str:
        """The vocabulary sizes in words."""

    def drop_unknown_labels(self, rows: Sequence[RowType], codecs: CodecsType, skip_bad: bool) -> list[RowType]:
        """The rows all of whose labels occur in the training data. Without `skip_bad` any other row is an error."""
        return list(rows)

    @abstractmethod
    def encode(self, rows: Sequence[RowType], codecs: CodecsType, longest: int) -> Encoded:
        """Encode rows for training; sequences longer than `longest` are left out or cut."""

    # ── training ──

    def check(self, model: Model, config: ModelConfig, joint: bool) -> None:
        """Refuse a model or settings that do not fit the task: a ConfigError, or a BuildError with a key of the task.
        `joint` is data.joint."""
        return

    def prepare(self, encoded: Encoded, report: Callable[[str], None]) -> None:
        """Compute what training needs besides the rows, such as word alignments; `report` takes progress messages."""
        return

    @abstractmethod
    def loss(self, model: Model, batch: Batch) -> Loss:
        """The training loss of a batch, summed over its tokens or labels."""

    @abstractmethod
    def validate(
        self, model: Model, codecs: CodecsType, rows: Sequence[RowType], longest: int, decode: DecodeConfig
    ) -> Validation:
        """Compute all `metrics` on the development rows."""

    # ── use of a trained model ──

    @abstractmethod
    def predict_lines(self, run: TrainedModel[CodecsType], rows: Sequence[RowType]) -> list[str]:
        """The model's output for each row as a line of text. The targets of the rows are not used."""

    def evaluate(
        self, run: TrainedModel[CodecsType], rows: Sequence[RowType], options: EvaluationOptions
    ) -> dict[str, Any]:
        """The scores that `saccade evaluate` prints, as JSON-serializable values; by default those of a validation."""
        scores = self.validate(run.model, run.codecs, rows, run.longest, options.decode).scores
        return {**scores, "rows": len(rows)}

    def score_lines(self, scores: Mapping[str, Any]) -> list[str]:
        """The scores of `evaluate` as lines of text."""
        titles = {metric.key: metric.title for metric in self.metrics}
        return [f"{titles.get(key, key):<30} {value:10,.4g}" for key, value in scores.items() if key != "checkpoint"]

    def evaluate_for_report(self, run: TrainedModel[CodecsType], rows: Sequence[RowType], split: str) -> Evaluation:
        """The evaluation that the report shows; by default only the scores of a validation."""
        values = self.validate(run.model, run.codecs, rows, run.longest, run.decode).scores
        scores = tuple(MetricScore(metric.title, values[metric.key]) for metric in self.metrics)
        return Evaluation(split, len(rows), length_unit="", scores=scores, best=(), worst=(), lengths=())

    def signature(self, metric: Metric) -> str:
        """The sacreBLEU signature of one of `metrics`; "" if it has none."""
        return ""


class PairTask(Task[RowType, CodecsType]):
    """A task whose training pairs can be encoded in blocks and stored in the cache. The arrays must not depend on the
    options of the task."""

    @property
    def encodes_text_alone(self) -> bool:
        """Whether training needs nothing of a pair but the ids of its texts and its label."""
        return True

    @abstractmethod
    def tokenizers(self, codecs: CodecsType) -> dict[Side, Tokenizer]:
        """The tokenizer of each side that is text. If the target is none, it is a label."""

    def encode_labels(self, rows: Sequence[RowType], codecs: CodecsType) -> FlatRows | None:
        """The label of each row; None if the targets are text."""
        return None

    @abstractmethod
    def left_out(self, sources: FlatRows, targets: FlatRows, longest: int) -> dict[str, np.ndarray]:
        """For each reason to leave rows out of training, the rows [rows] that it applies to."""


def kept_rows(left_out: Mapping[str, np.ndarray]) -> np.ndarray:
    """The rows [rows] that no reason applies to."""
    return ~np.any([*left_out.values()], axis=0)


def counts_of(left_out: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The number of rows that each reason applies to."""
    return {reason: int(rows.sum()) for reason, rows in left_out.items()}


def check_rows(task: Task, rows: Sequence[Row], split: str) -> None:
    """Raise an error that names the first row that the task cannot be trained on."""
    wrong = next((row for row in rows if not task.accepts(row)), None)
    if wrong is not None:
        raise DataError(
            f"data.{split}: {wrong.location}: the task needs {task.expects}, but this row has other data; correct the "
            "row, or set `task` to one that fits the data"
        )


def sample_rows(count: int) -> range:
    """The row numbers that are shown at every validation."""
    return range(0, count, max(1, count // VALIDATION_SAMPLES))[:VALIDATION_SAMPLES]


@torch.inference_mode()
def summed_cost(
    model: Model,
    corpus: Corpus,
    batch_tokens: int,
    loss: Callable[[Model, Batch, TokenCost], Loss],
    rows: Sequence[int] | None = None,
) -> tuple[float, int]:
    """The cross-entropy without label smoothing, summed over the targets of some rows (default: all), and the number
    of targets."""
    was_training, device = model.training, device_of(model)
    model.eval()
    batches = by_length(corpus, np.arange(len(corpus)) if rows is None else np.array(rows), batch_tokens)
    try:
        losses = [loss(model, corpus.batch(batch.tolist()).to(device), CROSS_ENTROPY) for batch in batches]
    finally:
        model.train(was_training)
    return sum(result.logged["cost"] for result in losses), sum(result.count for result in losses)
