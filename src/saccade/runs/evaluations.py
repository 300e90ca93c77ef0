"""The evaluation stored in a run, so that the report and the model card need not decode the test data again."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from saccade.config import factory_of, plain
from saccade.data.sources import NoSource, Row
from saccade.errors import DataError
from saccade.recipe import Recipe, sources_of
from saccade.runs.checkpoints import WEIGHTS
from saccade.runs.files import write_bytes
from saccade.runs.folder import RunFolder, load_split
from saccade.tasks.evaluation import Evaluation
from saccade.tasks.task import check_rows

EVALUATION_FILE = "evaluation.json"
EVALUATION_FORMAT = 2


def evaluation_split(recipe: Recipe) -> str:
    """The split that is evaluated: test, or dev if the recipe has no test data."""
    return "dev" if factory_of(recipe.data.test) is NoSource else "test"


def evaluation_rows(run: RunFolder, recipe: Recipe) -> list[Row]:
    """The rows of `evaluation_split`. DataError if there are none, or if the data files have changed since the
    training."""
    split = evaluation_split(recipe)
    sources = {split: sources_of(recipe)[split]}
    run.check_same_data(sources)
    rows, _ = load_split(sources, split, recipe.data.skip_bad)
    if not rows:
        raise DataError(f"data.{split}: has no rows to evaluate on; check that its files are not empty")
    check_rows(recipe.built_task, rows, split)
    return list(rows)


@dataclass(frozen=True)
class _StoredEvaluation:
    format: int
    key: str
    evaluation: Evaluation


def evaluation_key(run: RunFolder, recipe: Recipe, manifest: Mapping[str, Any]) -> str:
    """A checksum of everything an evaluation depends on: the weights, the data files and the decode settings."""
    split = evaluation_split(recipe)
    files = run.data_checksums()
    inputs = {
        "weights": manifest["files"].get(WEIGHTS),
        "files": {name: value for name, value in files.items() if name.startswith(f"data.{split}.")},
        "source": plain(recipe.data)[split],
        "decode": plain(recipe.decode),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def load_evaluation(run: RunFolder, key: str) -> Evaluation | None:
    """The stored evaluation with this key; None if it is missing, damaged or has another key."""
    try:
        stored = TypeAdapter(_StoredEvaluation).validate_json((run.path / EVALUATION_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
    return stored.evaluation if (stored.format, stored.key) == (EVALUATION_FORMAT, key) else None


def store_evaluation(run: RunFolder, key: str, evaluation: Evaluation) -> None:
    stored = _StoredEvaluation(EVALUATION_FORMAT, key, evaluation)
    write_bytes(run.path / EVALUATION_FILE, TypeAdapter(_StoredEvaluation).dump_json(stored, indent=1) + b"\n")
