"""What a run has written down while it was trained: the curves so far, and the samples of each validation."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.runs.folder import LOCK, RunFolder
from saccade.tasks.task import ValidationSample

Points = dict[int, float]  # update → value


@dataclass(frozen=True)
class ValidationRecord:
    """One validation."""

    step: int
    figures: dict[str, float]
    samples: tuple[ValidationSample, ...]


@dataclass(frozen=True)
class History:
    """Curves by name, and validations in order. A run that was killed has them up to its last whole line."""

    curves: dict[str, Points] = field(default_factory=dict)
    validations: tuple[ValidationRecord, ...] = ()
    epoch: int | None = None  # begun
    seconds: float | None = None
    unreadable: int = 0  # lines

    @property
    def step(self) -> int:
        """The last update that was written down."""
        steps = [max(points) for points in self.curves.values() if points]
        return max([0, *steps, *(each.step for each in self.validations)])

    def curve(self, name: str) -> Points:
        return self.curves.get(name, {})

    def validated(self, name: str) -> Points:
        """A figure of the validations."""
        return {each.step: each.figures[name] for each in self.validations if name in each.figures}

    def at(self, step: int) -> ValidationRecord | None:
        """The last validation until then, which is what a checkpoint of that step is known by."""
        return next((each for each in reversed(self.validations) if each.step <= step), None)


def read_history(run: RunFolder) -> History:
    """From metrics.jsonl and timing.jsonl, whatever a kill or another hand has done to them."""
    exact, bad = _records(run.metrics)
    measured, bad_too = _records(run.timing)
    lines = [record for record in exact if "validation" not in record]
    timed = {record["step"]: record for record in measured}  # after a kill a step may be there twice: the last holds
    parts = {record["step"]: record["parts"] for record in lines if isinstance(record.get("parts"), dict)}
    names = sorted({name for each in parts.values() for name in each})
    curves = {name: _points(lines, name) for name in ("loss", "rate", "gradient_norm")}
    curves |= {name: _points([*timed.values()], name) for name in _MEASURED}
    curves |= {f"parts.{name}": _points([{"step": s, **each} for s, each in parts.items()], name) for name in names}
    return History(
        curves=curves,
        validations=tuple(_validated(record) for record in exact if isinstance(record.get("validation"), dict)),
        epoch=next((record["epoch"] for record in reversed(lines) if isinstance(record.get("epoch"), int)), None),
        seconds=max(_points([*timed.values()], "seconds").values(), default=None),
        unreadable=bad + bad_too,
    )


def being_trained(run: RunFolder) -> bool:
    """Whether a trainer holds the run now."""
    try:
        handle = os.open(run.path / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


_MEASURED = ("source_tokens_per_second", "target_tokens_per_second")
_ENDLESS = 1e15


def _records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines that hold a step, and how many do not. A last line without an end is still being written."""
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return [], 0
    whole = text[: text.rfind("\n") + 1].split("\n")[:-1]
    found = [record for record in map(_record, whole) if record]
    return found, len(whole) - len(found)


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return record if type(step) is int and 0 <= step < _ENDLESS else None


def _points(records: list[dict[str, Any]], name: str) -> Points:
    """What is a number of that name, by step."""
    return {record["step"]: float(record[name]) for record in records if _is_number(record.get(name))}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _ENDLESS  # which no NaN is


def _validated(record: dict[str, Any]) -> ValidationRecord:
    figures = {name: float(value) for name, value in record["validation"].items() if _is_number(value)}
    return ValidationRecord(record["step"], figures, tuple(_samples(record.get("samples"))))


def _samples(found: Any) -> Iterator[ValidationSample]:
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and all(isinstance(each.get(name), str) for name in _SAMPLE):
            yield ValidationSample(*(each[name] for name in _SAMPLE))


_SAMPLE = ("source", "reference", "output")
