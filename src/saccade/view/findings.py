"""What a trained run makes of text that judges it: scores, its best and worst rows, the effect of length."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from saccade.config import plain
from saccade.data.codecs import Scaling
from saccade.data.sources import NoSource, Pair
from saccade.data.tokenizers import Tokenizer
from saccade.errors import DataError
from saccade.metrics.labels import Confusion
from saccade.metrics.translation import RESAMPLES, bleu, chrf, score
from saccade.recipe import Recipe, part_of, sources_of, task_of
from saccade.runs.checkpoints import WEIGHTS
from saccade.runs.files import read_json, write_bytes
from saccade.runs.folder import DATA, RunFolder, rows_of
from saccade.tasks.labeling import Labeling
from saccade.tasks.task import check_rows

EVALUATION_FILE = "report.json"
EVALUATION_FORMAT = 1
ROWS_SHOWN = 8  # best rows, and worst
LENGTH_BUCKETS = 8
PERFECT_SCORE = 99.995  # per cent, as far as anyone shows it


@dataclass(frozen=True)
class Figure:
    """A score; with what it was measured by and its 95 % interval, where there are such."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    signature: str = ""


@dataclass(frozen=True)
class ScoredRow:
    """A row and what the run made of it; `score` is its chrF, or the share of its labels that are right."""

    source: str
    reference: str
    output: str
    score: float
    length: int


@dataclass(frozen=True)
class Bucket:
    """Rows of about the same length. The last bucket is open."""

    first: int
    last: int | None
    count: int
    figures: dict[str, float]

    def __str__(self) -> str:
        if self.last is None:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True)
class Evaluation:
    """What was found on one split of the data."""

    split: str
    rows: int
    unit: str  # of lengths
    figures: tuple[Figure, ...]
    best: tuple[ScoredRow, ...]
    worst: tuple[ScoredRow, ...]
    lengths: tuple[Bucket, ...]
    labels: tuple[str, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()  # [true, found]

    def __post_init__(self) -> None:
        if {len(self.labels)} != {len(self.counts), *map(len, self.counts)}:
            raise ValueError("the confusion is not one of its labels")

    @property
    def confusion(self) -> Confusion | None:
        return Confusion(self.labels, np.array(self.counts, dtype=np.int64)) if self.labels else None


# ── what is judged ──


def evaluation_split(recipe: Recipe) -> str:
    """The test data; the development data where there is none."""
    return "dev" if part_of(recipe.data.test) is NoSource else "test"


def evaluation_rows(run: RunFolder, recipe: Recipe) -> list[Any]:
    """Its rows, if the text is that of the run."""
    split = evaluation_split(recipe)
    source = {split: sources_of(recipe)[split]}
    run.check_same_data(source)
    rows, _ = rows_of(source, split, recipe.data.skip_bad)
    if not rows:
        raise DataError(f"data.{split}: there is nothing to judge by")
    check_rows(task_of(recipe), rows, split)
    return list(rows)


def evaluate_translations(split: str, rows: Sequence[Pair], outputs: Sequence[str], codec: Tokenizer) -> Evaluation:
    """Scores of a translator's outputs; `codec` is that of the sources."""
    lengths, unit = _lengths(rows, codec)
    references = [row.target for row in rows]
    judged = [
        ScoredRow(row.source, row.target, output, chrf([output], [row.target]), length)
        for row, output, length in zip(rows, outputs, lengths, strict=True)
    ]

    def scores(chosen: Sequence[int]) -> dict[str, float]:
        both = [outputs[i] for i in chosen], [references[i] for i in chosen]
        return {"chrF": chrf(*both), "BLEU": bleu(*both)}

    best, worst = _best_and_worst(judged)
    return Evaluation(
        split=split,
        rows=len(rows),
        unit=unit,
        figures=_translation_figures(outputs, references),
        best=best,
        worst=worst,
        lengths=_by_length(lengths, scores),
    )


def _translation_figures(outputs: Sequence[str], references: Sequence[str]) -> tuple[Figure, ...]:
    found = score(outputs, references)
    names = {"bleu": "BLEU", "chrf": "chrF", "bleu_lc_tok": "BLEU, lower-cased and tokenised"}
    exact = np.array([[output == reference, 1] for output, reference in zip(outputs, references, strict=True)])
    return (
        *(
            Figure(name, getattr(found, key), (found.interval[key][0], found.interval[key][1]), found.signatures[key])
            for key, name in names.items()
        ),
        Figure("Exact match, %", found.exact_match, _resampled(exact, lambda sums: 100 * float(sums[0] / sums[1]))),
    )


def evaluate_labels(
    split: str, task: Labeling, rows: Sequence[Any], found: Sequence[Sequence[str]], codec: Tokenizer | Scaling
) -> Evaluation:
    """Measures of the labels that were found. Rows without a true one are left out."""
    kept = [i for i, row in enumerate(rows) if any(task.labels(row))]
    if not kept:
        raise DataError(f"data.{split}: no row has a label to judge by")
    rows, found = [rows[i] for i in kept], [found[i] for i in kept]
    lengths, unit = _lengths(rows, codec)
    confusion = task.confusion(rows, found)
    counts = _counts(confusion.labels, [task.labels(row) for row in rows], found)
    judged = []
    for row, said, each, length in zip(rows, found, counts, lengths, strict=True):
        sample = task.sample(row, said)
        judged.append(ScoredRow(sample.source, sample.reference, sample.output, _accuracy(each), length))
    best, worst = _best_and_worst(judged)
    return Evaluation(
        split=split,
        rows=len(rows),
        unit=unit,
        figures=(
            Figure("Accuracy, %", _accuracy(counts.sum(0)), _resampled(counts, _accuracy)),
            Figure("Macro F1, %", _macro_f1(counts.sum(0)), _resampled(counts, _macro_f1)),
        ),
        best=best,
        worst=worst,
        lengths=_by_length(lengths, lambda chosen: {"accuracy": _accuracy(counts[list(chosen)].sum(0))}),
        labels=confusion.labels,
        counts=tuple(map(tuple, confusion.counts.tolist())),
    )


def _counts(labels: Sequence[str], true: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> np.ndarray:
    """For each row and label how often it was found where it is true, is true, was found: [rows, 3, labels]."""
    number = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(true), 3, len(labels)), dtype=np.int64)
    for row, both in enumerate(zip(true, found, strict=True)):
        for is_, said in zip(*both, strict=True):
            if is_:
                counts[row, 0, number[is_]] += is_ == said
                counts[row, 1, number[is_]] += 1
                counts[row, 2, number[said]] += 1
    return counts


def _accuracy(counts: np.ndarray) -> float:
    return 100 * float(counts[0].sum() / counts[1].sum())


def _macro_f1(counts: np.ndarray) -> float:
    right, seen = counts[0], counts[1] + counts[2]
    return 100 * float((2 * right[seen > 0] / seen[seen > 0]).mean())


def _best_and_worst(judged: Sequence[ScoredRow]) -> tuple[tuple[ScoredRow, ...], tuple[ScoredRow, ...]]:
    """Of equal ones the longest first; no row is both, and none without a fault is among the worst."""
    order = sorted(judged, key=lambda row: (-row.score, -row.length))
    best = min(ROWS_SHOWN, (len(order) + 1) // 2)
    faulty = (row for row in order[best:] if row.score < PERFECT_SCORE)
    return tuple(order[:best]), tuple(sorted(faulty, key=lambda row: (row.score, -row.length))[:ROWS_SHOWN])


def _resampled(counts: np.ndarray, measure: Callable[[np.ndarray], float]) -> tuple[float, float] | None:
    """The 95 % interval of a measure of counts [rows, …] that are summed over rows, by bootstrap."""
    rows = len(counts)
    if rows < 2:
        return None
    random = np.random.default_rng(0)
    draws = (np.bincount(random.integers(rows, size=rows), minlength=rows) for _ in range(RESAMPLES))
    low, high = np.percentile([measure(np.tensordot(draw, counts, 1)) for draw in draws], [2.5, 97.5])
    return float(low), float(high)


# ── lengths ──


def _lengths(rows: Sequence[Any], codec: Tokenizer | Scaling) -> tuple[list[int], str]:
    """How long each row is, and what that counts."""
    if isinstance(codec, Scaling):
        return [len(row.source) for row in rows], "frames"
    if isinstance(rows[0], Pair):
        return [len(ids) for ids in codec.encode([row.source for row in rows])], "pieces"
    return [len(row.source) for row in rows], "words"


def _by_length(lengths: Sequence[int], figures: Callable[[Sequence[int]], dict[str, float]]) -> tuple[Bucket, ...]:
    """Buckets of an even width, the last one open; those without rows are left out."""
    if not lengths:
        return ()
    each = np.array(lengths)
    width = _width(float(np.percentile(each, 95)) / LENGTH_BUCKETS)
    number = np.minimum((np.maximum(each, 1) - 1) // width, LENGTH_BUCKETS - 1)
    buckets = []
    for bucket in np.unique(number).tolist():
        chosen = np.flatnonzero(number == bucket).tolist()
        last = None if bucket == LENGTH_BUCKETS - 1 else (bucket + 1) * width
        buckets.append(Bucket(bucket * width + 1, last, len(chosen), figures(chosen)))
    return tuple(buckets)


def _width(least: float) -> int:
    """The next number that people count by."""
    return next(nice * 10**power for power in range(16) for nice in (1, 2, 5) if nice * 10**power >= least)


# ── kept in the run, so that the same is not worked out twice ──


@dataclass(frozen=True)
class _Stored:
    format: int
    key: str
    findings: Evaluation


def cache_key(run: RunFolder, recipe: Recipe, manifest: Mapping[str, Any]) -> str:
    """A checksum over what findings depend on: the weights, the text, and how outputs are searched for."""
    split = evaluation_split(recipe)
    files = read_json(run.path / DATA).get("sha256", {})
    parts = {
        "weights": manifest["files"].get(WEIGHTS),
        "files": {name: value for name, value in files.items() if name.startswith(f"data.{split}.")},
        "source": plain(recipe.data)[split],
        "decode": plain(recipe.decode),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def cached_evaluation(run: RunFolder, key: str) -> Evaluation | None:
    """Those that were found before; a file that is missing, damaged or of something else holds none."""
    try:
        kept = TypeAdapter(_Stored).validate_json((run.path / EVALUATION_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
    return kept.findings if (kept.format, kept.key) == (EVALUATION_FORMAT, key) else None


def cache_evaluation(run: RunFolder, key: str, findings: Evaluation) -> None:
    write_bytes(
        run.path / EVALUATION_FILE,
        TypeAdapter(_Stored).dump_json(_Stored(EVALUATION_FORMAT, key, findings), indent=1) + b"\n",
    )
