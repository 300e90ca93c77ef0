"""Checks that every task of the table passes, with rows of every type that it accepts."""

import copy
import inspect
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from contracts.checks.common import perturbed
from contracts.variants import NO_DROPOUT
from saccade.cli import app
from saccade.config import python_layer, resolve, schema
from saccade.data.codecs import Codecs
from saccade.data.source_codecs import SOURCE_CODECS
from saccade.data.sources.rows import Pair, Row, Series, Tagged
from saccade.data.tokenizers import WordKind
from saccade.decode.engine import DecodeConfig
from saccade.decode.search import Greedy
from saccade.decode.torch_engine import torch_engine
from saccade.models.assemble import Model, ModelConfig, assemble
from saccade.tasks.evaluation import Evaluation
from saccade.tasks.task import Encoded, EvaluationOptions, Task, TrainedModel

LONGEST, DIM = 7, 22
WORDS = ("ant", "bee", "cat", "dog", "elk")
LABELS = ("x", "y", "z")
GREEDY = DecodeConfig(search=Greedy)


def _series(random: np.random.Generator, length: int) -> np.ndarray:
    return random.normal(size=(length, 3)).astype(np.float32)


def example_rows() -> dict[str, list[Row]]:
    """Rows of every type, with both kinds of targets where the type has two. The last row is longer than LONGEST."""
    random = np.random.default_rng(0)
    lengths = (3, 1, 5, 2, 4, LONGEST + 2)
    sentences = [tuple(str(word) for word in random.choice(WORDS, length)) for length in lengths]
    labels = [tuple(str(label) for label in random.choice(LABELS, length)) for length in lengths]
    places = [f"file:{number}" for number in range(1, len(lengths) + 1)]
    texts = [" ".join(sentence) for sentence in sentences]
    return {
        "texts": [
            Pair(text, " ".join((tags * 4)[:4]), place)  # BLEU needs four words
            for text, tags, place in zip(texts, labels, places, strict=True)
        ],
        "sentences": [Tagged(*row) for row in zip(sentences, labels, places, strict=True)],
        "frames": [Series(_series(random, len(tags)), tags, place) for tags, place in zip(labels, places, strict=True)],
        "series": [
            Series(_series(random, len(tags)), tags[0], place) for tags, place in zip(labels, places, strict=True)
        ],
    }


@dataclass(frozen=True)
class TaskCase:
    """A task, and example rows that it accepts. What is learned from them and the model are made at first use."""

    task: Task
    rows: list[Any]

    @cached_property
    def codecs(self) -> Codecs[Any, Any]:
        return self.task.learn(self.rows, WordKind(), True)

    @cached_property
    def encoded(self) -> Encoded:
        return self.task.encode(self.rows, self.codecs, LONGEST)

    @cached_property
    def model(self) -> Model:
        """A small recurrent model with perturbed weights."""
        torch.manual_seed(0)
        embedding = "tokens" if self.codecs.source.input.is_text else "series"
        tree = {
            "dim": DIM,
            "encoder": {"kind": "recurrent", "embedding": embedding},
            "head": "linear",
            "dropout": NO_DROPOUT,
        }
        has_decoder = self.task.reads == "decoder"
        tree |= {"decoder": {"kind": "recurrent"}, "shared_embeddings": False} if has_decoder else {"decoder": "none"}
        config: ModelConfig = resolve(ModelConfig, [python_layer(tree)]).config
        model = assemble(config, self.codecs.source.input, self.codecs.target.size, self.task.reads)
        self.task.check(model, config, True)
        return perturbed(model).eval()

    @property
    def trained(self) -> TrainedModel:
        return TrainedModel(self.model, self.codecs, LONGEST, GREEDY, self._engine)

    def _engine(self) -> Any:
        return torch_engine(self.model, self.codecs.source, self.codecs.target)


def cases(task: Task) -> dict[str, TaskCase]:
    """The task with the rows of each type that it accepts."""
    examples = example_rows()
    return {name: TaskCase(task, rows) for name, rows in examples.items() if all(map(task.accepts, rows))}


def check_words(task: Task) -> None:
    """Its command exists, it has words for messages, and all of its options have defaults."""
    assert task.command in [*app], f"there is no command '{task.command}'"
    for name in ("does", "expects", "unit"):
        assert getattr(task, name), f"'{name}' is empty"
    assert inspect.getdoc(type(task)), "it has no docstring"
    assert not any(field.is_required() for field in schema("task", type(task)).model_fields.values())


def check_accepted_rows(task: Task) -> None:
    """It accepts rows of every type that it lists, and of no other type."""
    accepted = {type(case.rows[0]) for case in cases(task).values()}
    assert accepted == {*task.rows}, f"lists {task.rows}, but accepts {accepted}"


def check_codecs(case: TaskCase) -> None:
    """Codecs that are stored and read encode all rows as the learned ones."""
    task, files = case.task, case.task.files(case.codecs)
    again = task.read(files, WordKind(), True)
    assert task.files(again) == files
    assert task.describe(again) == task.describe(case.codecs) != ""
    encoded = task.encode(case.rows, again, LONGEST)
    assert _values(encoded) == _values(case.encoded)
    assert again.source.input == case.codecs.source.input
    assert again.target.size == case.codecs.target.size


def _values(encoded: Encoded) -> list[tuple[list[Any], list[int]]]:
    corpus = encoded.corpus
    return [(corpus.source(row).tolist(), corpus.target(row).tolist()) for row in range(len(corpus))]


def check_placeholder(case: TaskCase) -> None:
    """What the recipe expects the model to read, from the type of the rows, is what the learned codec gives it."""
    assert type(SOURCE_CODECS[type(case.rows[0])].placeholder) is type(case.codecs.source.input)


def check_encoding(case: TaskCase) -> None:
    """Every row is encoded, in one or several windows, or counted as left out. No encoded row is longer than the
    limit, and all of them are named by their locations."""
    encoded = case.encoded
    rows = {location.partition(",")[0] for location in encoded.locations}
    assert len(encoded.locations) == len(encoded.corpus)
    assert len(rows) + sum(encoded.left_out.values()) == len(case.rows)
    assert rows <= {row.location for row in case.rows}
    assert encoded.corpus.source_lengths.max() <= LONGEST


def check_loss(case: TaskCase) -> None:
    """The loss is finite, has a gradient for every weight, and is a sum: that of a batch equals that of its rows."""
    model, corpus = copy.deepcopy(case.model).train(), case.encoded.corpus
    loss = case.task.loss(model, corpus.batch([*range(len(corpus))]))
    loss.total.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} has no gradient"
        assert bool(weight.grad.isfinite().all()), f"the gradient of {name} is not finite"
    assert loss.count > 0
    assert math.isfinite(loss.logged["cost"])
    with torch.no_grad():
        single = [case.task.loss(model, corpus.batch([row])) for row in range(len(corpus))]
    assert sum(part.count for part in single) == loss.count
    assert math.isclose(sum(float(part.total) for part in single), float(loss.total.detach()), rel_tol=1e-4)


def check_validation(case: TaskCase) -> None:
    """The scores are finite, those that the task declares, and the same each time."""
    task = case.task
    assert task.best_metric in task.metrics
    assert len({metric.key for metric in task.metrics}) == len(task.metrics)
    validation, again = (task.validate(case.model, case.codecs, case.rows, LONGEST, GREEDY) for _ in range(2))
    assert [*validation.scores] == [metric.key for metric in task.metrics]
    assert all(math.isfinite(score) for score in validation.scores.values())
    assert validation.samples
    assert validation == again


def check_direction(case: TaskCase) -> None:
    """Every metric is better after training on the rows than before: its direction is right."""
    untrained = case.task.validate(case.model, case.codecs, case.rows, LONGEST, GREEDY).scores
    model, corpus = copy.deepcopy(case.model).train(), case.encoded.corpus
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        loss = case.task.loss(model, corpus.batch([*range(len(corpus))]))
        (loss.total / loss.count).backward()
        optimizer.step()
    rows = [row for row in case.rows if row.location in case.encoded.locations]
    trained = case.task.validate(model.eval(), case.codecs, rows, LONGEST, GREEDY).scores
    for metric in case.task.metrics:
        assert metric.is_better(trained[metric.key], than=untrained[metric.key]), metric.key


def check_evaluation(case: TaskCase) -> None:
    """The scores of a run are JSON and can be printed. The evaluation for the report has the same rows, and survives
    being stored."""
    task, options = case.task, EvaluationOptions(GREEDY)
    scores = task.evaluate(case.trained, case.rows, options)
    try:
        lines = task.score_lines(json.loads(json.dumps(scores, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"the scores are not JSON: {error}") from error
    assert lines
    assert not any("\n" in line for line in lines)
    evaluation = task.evaluate_for_report(case.trained, case.rows, "test")
    assert (evaluation.split, evaluation.rows) == ("test", len(case.rows))
    assert evaluation.scores
    assert not evaluation.best or task.row_score
    stored = TypeAdapter(Evaluation)
    assert stored.validate_json(stored.dump_json(evaluation)) == evaluation


def check_prediction(case: TaskCase) -> None:
    """One line of output for each row, which does not depend on the targets or on the other rows."""
    lines = case.task.predict_lines(case.trained, case.rows)
    assert len(lines) == len(case.rows)
    assert not any("\n" in line for line in lines)
    assert case.task.predict_lines(case.trained, _with_other_targets(case.rows)) == lines
    assert [case.task.predict_lines(case.trained, [row])[0] for row in case.rows] == lines


def _with_other_targets(rows: Sequence[Any]) -> list[Any]:
    """The rows with their labels, or the words of their targets, replaced by another one."""
    return [replace(row, target="z" if isinstance(row.target, str) else ("z",) * len(row.target)) for row in rows]


def check_python_rows(case: TaskCase) -> None:
    """A source and a target given in Python are encoded as those of a data source."""
    task = case.task
    rows = [task.row(case.codecs, row.source, row.target, row.location) for row in case.rows]
    assert all(map(task.accepts, rows))
    assert _values(task.encode(rows, case.codecs, LONGEST)) == _values(case.encoded)
    unlabeled = [task.row(case.codecs, row.source, None, row.location) for row in case.rows]
    lines = task.predict_lines(case.trained, case.rows)
    assert task.predict_lines(case.trained, unlabeled) == lines


TASK_CHECKS = (check_words, check_accepted_rows)
CASE_CHECKS = (
    check_codecs,
    check_placeholder,
    check_encoding,
    check_loss,
    check_validation,
    check_direction,
    check_evaluation,
    check_prediction,
    check_python_rows,
)
