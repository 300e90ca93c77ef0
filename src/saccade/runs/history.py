"""The training history of a run: curves and validations, read from metrics.jsonl and timing.jsonl."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.runs.folder import LOCK_FILE, RunFolder
from saccade.tasks.task import ValidationSample

Points = dict[int, float]  # training step → value
AUXILIARY_CURVE = "auxiliary_losses."  # prefix of the names of curves of auxiliary losses


@dataclass(frozen=True)
class ValidationRecord:
    """The scores and samples of one validation."""

    step: int
    scores: dict[str, float]
    samples: tuple[ValidationSample, ...]


@dataclass(frozen=True)
class History:
    """Curves by name, and validations in order. After a kill it ends with the last complete line of the files."""

    curves: dict[str, Points] = field(default_factory=dict)
    validations: tuple[ValidationRecord, ...] = ()
    epoch: int | None = None  # the current epoch, counted from 0
    seconds: float | None = None
    unreadable_lines: int = 0

    @property
    def step(self) -> int:
        """The last recorded training step."""
        steps = [max(points) for points in self.curves.values() if points]
        return max([0, *steps, *(record.step for record in self.validations)])

    def curve(self, name: str) -> Points:
        return self.curves.get(name, {})

    def validation_curve(self, metric: str) -> Points:
        """The scores of one metric over all validations."""
        return {record.step: record.scores[metric] for record in self.validations if metric in record.scores}

    def validation_at(self, step: int) -> ValidationRecord | None:
        """The last validation at or before a step: the one that belongs to a checkpoint of that step."""
        return next((record for record in reversed(self.validations) if record.step <= step), None)


def read_history(run: RunFolder) -> History:
    """Read metrics.jsonl and timing.jsonl. Missing files and damaged lines are tolerated; the latter are counted."""
    metrics, bad_metrics = _read_records(run.metrics)
    timings, bad_timings = _read_records(run.timing)
    intervals = [record for record in metrics if "validation" not in record]
    timing_by_step = {record["step"]: record for record in timings}  # a resumed step occurs twice: the last one counts
    timings = [*timing_by_step.values()]
    auxiliary = {
        record["step"]: record["auxiliary_losses"]
        for record in intervals
        if isinstance(record.get("auxiliary_losses"), dict)
    }
    auxiliary_names = sorted({name for losses in auxiliary.values() for name in losses})
    auxiliary_records = [{"step": step, **losses} for step, losses in auxiliary.items()]
    curves = {name: _points(intervals, name) for name in ("loss", "rate", "gradient_norm")}
    curves |= {name: _points(timings, name) for name in ("source_tokens_per_second", "target_tokens_per_second")}
    curves |= {f"{AUXILIARY_CURVE}{name}": _points(auxiliary_records, name) for name in auxiliary_names}
    return History(
        curves=curves,
        validations=tuple(_validation(record) for record in metrics if isinstance(record.get("validation"), dict)),
        epoch=next((record["epoch"] for record in reversed(intervals) if isinstance(record.get("epoch"), int)), None),
        seconds=max(_points(timings, "seconds").values(), default=None),
        unreadable_lines=bad_metrics + bad_timings,
    )


def is_being_trained(run: RunFolder) -> bool:
    """Whether a training process holds the run's lock now."""
    try:
        handle = os.open(run.path / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


_MAX_NUMBER = 1e15  # larger steps and values are taken for damage


def _read_records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The JSON records of a file that have a step, and the number of other lines. A last line without a newline is
    still being written and is ignored."""
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return [], 0
    lines = text[: text.rfind("\n") + 1].split("\n")[:-1]
    records = [record for record in map(_parse_record, lines) if record]
    return records, len(lines) - len(records)


def _parse_record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return record if type(step) is int and 0 <= step < _MAX_NUMBER else None


def _points(records: list[dict[str, Any]], name: str) -> Points:
    return {record["step"]: float(record[name]) for record in records if _is_number(record.get(name))}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _MAX_NUMBER  # false for NaN


def _validation(record: dict[str, Any]) -> ValidationRecord:
    scores = {name: float(value) for name, value in record["validation"].items() if _is_number(value)}
    return ValidationRecord(record["step"], scores, tuple(_samples(record.get("samples"))))


def _samples(samples: Any) -> Iterator[ValidationSample]:
    for sample in samples if isinstance(samples, list) else ():
        if isinstance(sample, dict) and all(isinstance(sample.get(name), str) for name in _SAMPLE_FIELDS):
            yield ValidationSample(*(sample[name] for name in _SAMPLE_FIELDS))


_SAMPLE_FIELDS = ("source", "reference", "output")
