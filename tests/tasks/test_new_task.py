"""A new task is one class and one line in TASKS: it trains, validates, is evaluated, reported and used by the commands,
and passes the contracts of tasks."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch

import saccade
from contracts.checks.tasks import CASE_CHECKS, TASK_CHECKS, cases
from saccade.cli import main
from saccade.data.batches import COLLATE_LABELS, Batch, Corpus
from saccade.data.codecs import Codecs, file_of
from saccade.data.source_codecs import TextCodec
from saccade.data.sources.rows import Pair
from saccade.data.tokenizers import TokenizerKind
from saccade.decode.engine import DecodeConfig
from saccade.errors import SaccadeError
from saccade.models.assemble import Model
from saccade.runs.history import read_history
from saccade.tasks import TASKS
from saccade.tasks.losses import Loss, sequence_label_loss
from saccade.tasks.task import LOSS, Encoded, Metric, Task, TrainedModel, Validation, ValidationSample, summed_cost

ERROR = Metric("error", "mean error", higher_is_better=False)


class Counts:
    """The target codec: a number of words is its own id."""

    size = 12


CountCodecs = Codecs[TextCodec, Counts]


class CountWords(Task[Pair, CountCodecs]):
    """Predicts the number of words of the source. The target of a row is not used."""

    command = "predict"
    does = "counts words"
    rows = (Pair,)
    expects = "texts"
    unit = "texts"
    reads = "summary"
    collate = COLLATE_LABELS
    metrics = (LOSS, ERROR)
    best_metric = ERROR

    def row(self, codecs: CountCodecs, source: str, target: str | None, location: str) -> Pair:
        return Pair(source, "" if target is None else target, location)

    def learn(self, rows: Iterable[Pair], kind: TokenizerKind, joint: bool) -> CountCodecs:
        return Codecs(TextCodec.learn(rows, kind), Counts())

    def files(self, codecs: CountCodecs) -> dict[str, bytes]:
        return {"source.model": codecs.source.dump()}

    def read(self, files: Mapping[str, bytes], kind: TokenizerKind, joint: bool) -> CountCodecs:
        return Codecs(TextCodec.read(file_of(files, "source.model"), kind), Counts())

    def describe(self, codecs: CountCodecs) -> str:
        return f"{codecs.source.size} tokens"

    def encode(self, rows: Sequence[Pair], codecs: CountCodecs, longest: int) -> Encoded:
        kept = [row for row in rows if 0 < _words(row) <= min(longest, Counts.size - 1)]
        corpus = Corpus(codecs.source.encode(kept), [[_words(row)] for row in kept], self.collate)
        return Encoded(corpus, tuple(row.location for row in kept), {"empty or too long": len(rows) - len(kept)})

    def loss(self, model: Model, batch: Batch) -> Loss:
        return sequence_label_loss(model, batch)

    def validate(
        self, model: Model, codecs: CountCodecs, rows: Sequence[Pair], longest: int, decode: DecodeConfig
    ) -> Validation:
        corpus = self.encode(rows, codecs, longest).corpus
        cost, count = summed_cost(model, corpus, decode.batch_tokens, sequence_label_loss)
        counts = _counts(model, codecs, rows)
        errors = [abs(_words(row) - count) for row, count in zip(rows, counts, strict=True)]
        sample = ValidationSample(rows[0].source, str(_words(rows[0])), str(counts[0]))
        return Validation({LOSS.key: cost / count, ERROR.key: float(np.mean(errors))}, (sample,))

    def predict_lines(self, run: TrainedModel[CountCodecs], rows: Sequence[Pair]) -> list[str]:
        return [str(count) for count in _counts(run.model, run.codecs, rows)]


def _words(row: Pair) -> int:
    return len(row.source.split())


@torch.inference_mode()
def _counts(model: Model, codecs: CountCodecs, rows: Sequence[Pair]) -> list[int]:
    counts = []
    for ids in codecs.source.encode(rows):
        summary = model.encode(torch.from_numpy(ids)[None], None).summary if len(ids) else None
        counts.append(0 if summary is None else int(model.head.log_probs(summary).argmax()))
    return counts


RECIPE = """
task = "counting"

[data]
tokenizer = "words"
train = { kind = "sort", rows = 300, shortest = 1, longest = 6, symbols = 8 }
dev = { kind = "sort", rows = 20, shortest = 1, longest = 6, symbols = 8, split = "dev" }
test = { kind = "sort", rows = 20, shortest = 1, longest = 6, symbols = 8, split = "test" }

[model]
dim = 32
head = "linear"
dropout = { residual = 0.0, embedding = 0.0 }
encoder = { kind = "recurrent", pool = "last" }

[train]
updates = 200
batch_tokens = 256
schedule = { kind = "linear", rate = 0.02, warmup = 10 }
log_every = 50
validate_every = 100
"""


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    jaxtyping.config.update("jaxtyping_disable", True)
    TASKS["counting"] = CountWords  # the one line
    yield
    del TASKS["counting"]
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counting")
    (folder / "counting.toml").write_text(RECIPE, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["saccade", "train"])
        assert main(["train", str(folder / "counting.toml"), "--run", str(folder / "run")]) == 0
    return folder / "run"


@pytest.mark.parametrize("check", [*TASK_CHECKS, *CASE_CHECKS], ids=lambda check: check.__name__)
def test_a_new_task_passes_the_contracts(check: Any) -> None:
    [case] = cases(CountWords()).values()
    check(case.task if check in TASK_CHECKS else case)


def test_a_new_task_is_trained_and_validated(run: Path) -> None:
    loaded = saccade.load(run)
    first, last = (read_history(loaded.folder).validations[i].scores for i in (0, -1))
    assert [*last] == ["loss", "error"]
    assert last["error"] <= first["error"]
    assert loaded.recipe.best_metric is ERROR
    assert loaded.folder.checkpoints.marked("best") is not None


def test_a_new_task_is_evaluated(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert [*scores] == ["loss", "error", "rows", "checkpoint"]
    assert scores["error"] < 0.3
    assert main(["evaluate", str(run)]) == 0
    assert re.search(r"^mean error +0", capsys.readouterr().out, re.MULTILINE)
    assert saccade.load(run).evaluate([("a b", ""), ("a", "")])["rows"] == 2
    for option in (["--labels", "a"], ["--beam", "2"]):
        assert main(["evaluate", str(run), *option]) == 2
        assert "runs; this run counts words" in capsys.readouterr().err


def test_a_new_task_has_a_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    text = (run / "report.html").read_text("utf-8")
    for part in ("Counting, trained on sort", "mean error", "On the 20 rows of the test data", "this run counts words"):
        assert part in text


def test_a_new_task_is_used_by_predict(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("a b c\n\na\n", "utf-8")
    assert main(["predict", str(run), str(tmp_path / "in.txt")]) == 0
    lines = saccade.load(run).predict(["a b c", "", "a"])
    assert capsys.readouterr().out.splitlines() == lines
    assert (len(lines), lines[1]) == (3, "0")
    with pytest.raises(SaccadeError, match="was trained for counting, but this needs a translation run; use this one"):
        saccade.load(run).translate(["a"])
