"""The checks of tasks fail on planted defects."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from contracts.checks import tasks as checks
from contracts.checks.tasks import TaskCase, cases
from saccade.data.codecs import Codecs, LabelCodec
from saccade.data.source_codecs import TextCodec
from saccade.data.sources.rows import Row, Tagged
from saccade.inputs import Frames
from saccade.tasks.evaluation import Evaluation
from saccade.tasks.losses import Loss
from saccade.tasks.tagging import Tagging
from saccade.tasks.task import Encoded, EvaluationOptions, TrainedModel, Validation

pytestmark = pytest.mark.slow


class WithoutCommand(Tagging):
    """Names a command that does not exist."""

    command = "label"


class TooStrict(Tagging):
    """Lists a type of rows that it does not accept."""

    def accepts(self, row: Row) -> bool:
        return isinstance(row, Tagged)


class LosesLabels(Tagging):
    """Stores its labels in another order."""

    def files(self, codecs: Any) -> dict[str, bytes]:
        return super().files(Codecs(codecs.source, LabelCodec(codecs.target.names[::-1])))


class DropsRows(Tagging):
    """Leaves a row out without counting it."""

    def encode(self, rows: Sequence[Any], codecs: Any, longest: int) -> Encoded:
        return super().encode(rows[1:], codecs, longest)


class ForgetsTheLimit(Tagging):
    """Encodes rows that are too long."""

    def encode(self, rows: Sequence[Any], codecs: Any, longest: int) -> Encoded:
        return super().encode(rows, codecs, 10 * longest)


class MeanLoss(Tagging):
    """Its loss is a mean, not a sum."""

    def loss(self, model: Any, batch: Any) -> Loss:
        loss = super().loss(model, batch)
        return replace(loss, total=loss.total / loss.count)


class DetachedLoss(Tagging):
    """Its loss has no gradient for the encoder."""

    def loss(self, model: Any, batch: Any) -> Loss:
        for weight in model.encoder.parameters():
            weight.requires_grad_(False)
        return super().loss(model, batch)


class UndeclaredMetric(Tagging):
    """Computes a metric that it does not declare."""

    def validate(self, *arguments: Any) -> Validation:
        result = super().validate(*arguments)
        return replace(result, scores=result.scores | {"extra": 1.0})


class MissingMetric(Tagging):
    """Does not compute a metric that it declares."""

    def validate(self, *arguments: Any) -> Validation:
        result = super().validate(*arguments)
        return replace(result, scores={"loss": result.scores["loss"], "accuracy": result.scores["accuracy"]})


class WrongDirection(Tagging):
    """Declares that a lower accuracy is better."""

    metrics = tuple(replace(metric, higher_is_better=False) for metric in Tagging.metrics)
    best_metric = metrics[0]


class TensorScores(Tagging):
    """Its scores are not JSON-serializable."""

    def evaluate(self, run: TrainedModel, rows: Sequence[Any], options: EvaluationOptions) -> dict[str, Any]:
        return super().evaluate(run, rows, options) | {"rows": rows}


class UnnamedRowScore(Tagging):
    """Does not say what the score of a row is."""

    row_score = ""


class LosesEvaluatedRows(Tagging):
    """Its report leaves a row out."""

    def evaluate_for_report(self, run: TrainedModel, rows: Sequence[Any], split: str) -> Evaluation:
        return super().evaluate_for_report(run, rows[1:], split)


class PrintsTheTargets(Tagging):
    """Prints the targets in place of the output."""

    def predict_lines(self, run: TrainedModel, rows: Sequence[Any]) -> list[str]:
        return [" ".join(row.target) for row in rows]


class DependsOnOtherRows(Tagging):
    """The output of a row depends on the number of rows."""

    def predict_lines(self, run: TrainedModel, rows: Sequence[Any]) -> list[str]:
        return [f"{line} {len(rows)}" for line in super().predict_lines(run, rows)]


class ReversesPythonRows(Tagging):
    """Reads a source given in Python from the end."""

    def row(self, codecs: Any, source: Any, target: Any, location: str) -> Any:
        return super().row(codecs, source[::-1], target, location)


def test_contract_fails_on_a_source_codec_with_a_placeholder_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases(Tagging())["sentences"]
    checks.check_placeholder(case)
    monkeypatch.setattr(TextCodec, "placeholder", Frames(8))
    with pytest.raises(AssertionError):
        checks.check_placeholder(case)


TASK_DEFECTS = {WithoutCommand: checks.check_words, TooStrict: checks.check_accepted_rows}
CASE_DEFECTS: dict[type[Tagging], Callable[[TaskCase], None]] = {
    LosesLabels: checks.check_codecs,
    DropsRows: checks.check_encoding,
    ForgetsTheLimit: checks.check_encoding,
    MeanLoss: checks.check_loss,
    DetachedLoss: checks.check_loss,
    UndeclaredMetric: checks.check_validation,
    MissingMetric: checks.check_validation,
    WrongDirection: checks.check_direction,
    TensorScores: checks.check_evaluation,
    UnnamedRowScore: checks.check_evaluation,
    LosesEvaluatedRows: checks.check_evaluation,
    PrintsTheTargets: checks.check_prediction,
    DependsOnOtherRows: checks.check_prediction,
    ReversesPythonRows: checks.check_python_rows,
}


@pytest.mark.parametrize("task", TASK_DEFECTS, ids=lambda task: task.__name__)
def test_contract_fails_on_a_defect_of_the_task(task: type[Tagging]) -> None:
    TASK_DEFECTS[task](Tagging())
    with pytest.raises(AssertionError):
        TASK_DEFECTS[task](task())


@pytest.mark.parametrize("task", CASE_DEFECTS, ids=lambda task: task.__name__)
def test_contract_fails_on_a_defect_of_the_task_with_rows(task: type[Tagging]) -> None:
    sound, defective = cases(Tagging())["sentences"], cases(task())["sentences"]
    CASE_DEFECTS[task](sound)
    with pytest.raises(AssertionError):
        CASE_DEFECTS[task](defective)
