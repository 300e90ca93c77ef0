"""Progress messages of a training: a progress bar on a terminal, one plain line per interval elsewhere; all on
stderr."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from saccade.console import clock, console
from saccade.tasks.task import Validation


@dataclass(frozen=True)
class IntervalReport:
    """What is logged every `train.log_every` updates: means over the interval, and the state at its end. The loss is
    None if every update of the interval was skipped."""

    step: int
    updates: int  # train.updates
    epoch: int
    loss: float | None
    auxiliary_losses: dict[str, float]  # by name
    gradient_norm: float | None
    skipped: int  # updates, since the beginning
    rate: float
    seconds: float  # since the beginning
    source_tokens_per_second: float
    target_tokens_per_second: float
    padding: float  # share of all positions
    seconds_left: float

    @property
    def perplexity(self) -> float | None:
        return None if self.loss is None else math.exp(min(self.loss, 700.0))

    def reproducible(self) -> dict[str, Any]:
        """The values that a repeated training reproduces bit by bit, for metrics.jsonl."""
        names = ("step", "epoch", "loss", "perplexity", "rate", "gradient_norm", "skipped")
        auxiliary = {"auxiliary_losses": self.auxiliary_losses} if self.auxiliary_losses else {}
        return {name: getattr(self, name) for name in names} | auxiliary

    def measured(self) -> dict[str, Any]:
        """The values that depend on the clock, for timing.jsonl."""
        names = ("step", "seconds", "source_tokens_per_second", "target_tokens_per_second", "padding")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        loss = "all updates skipped" if self.loss is None else f"loss {self.loss:.3f} · ppl {self.perplexity:.2f}"
        return (
            f"step {self.step:,}/{self.updates:,} · epoch {self.epoch} · {loss}"
            f" · {self.source_tokens_per_second:,.0f} source and {self.target_tokens_per_second:,.0f} target tokens/s"
            f" · padding {self.padding:.0%} · rate {self.rate:.2e} · {clock(self.seconds_left)} left"
        )


class Reporter(Protocol):
    """Receives the progress messages of a training."""

    def say(self, text: str) -> None: ...
    def interval(self, report: IntervalReport) -> None: ...
    def validation(self, step: int, result: Validation, best: bool) -> None: ...
    def close(self) -> None: ...


class ConsoleReporter:
    """Prints for people. NO_COLOR and pipes are respected (by rich)."""

    def __init__(self, screen: Console | None = None):
        self.console = screen or console()
        self._bar: Progress | None = None

    def say(self, text: str) -> None:
        self.console.print(Text(text))

    def interval(self, report: IntervalReport) -> None:
        if not self.console.is_terminal:
            self.say(str(report))
            return
        if self._bar is None:
            columns = BarColumn(bar_width=20), TextColumn("{task.description}", markup=False)
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._bar.add_task("", total=report.updates)
            self._bar.start()
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=report.step, total=report.updates, description=str(report))

    def validation(self, step: int, result: Validation, best: bool) -> None:
        scores = " · ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in result.scores.items())
        self.say(f"── validation at step {step:,}: {scores}{' · best so far' if best else ''}")
        for sample in result.samples:
            self.say(f"   {sample.source}\n   → {sample.output}\n   = {sample.reference}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Silent:
    """A reporter that prints nothing."""

    def say(self, text: str) -> None: ...
    def interval(self, report: IntervalReport) -> None: ...
    def validation(self, step: int, result: Validation, best: bool) -> None: ...
    def close(self) -> None: ...
