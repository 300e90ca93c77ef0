"""What a training tells its user: a bar on a terminal, one plain line an interval elsewhere. All of it on stderr."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from saccade.console import clock, console
from saccade.tasks.task import Validation


@dataclass(frozen=True)
class IntervalFigures:
    """The figures of one interval. There is no loss if every update of it was skipped."""

    step: int
    steps: int
    epoch: int
    loss: float | None
    parts: dict[str, float]  # what parts of the model add to it, by name
    gradient_norm: float | None
    skipped: int  # since the beginning
    rate: float
    seconds: float  # since the beginning
    source_rate: float  # tokens a second
    target_rate: float
    padding: float  # share of all places
    left: float  # seconds

    @property
    def perplexity(self) -> float | None:
        return None if self.loss is None else math.exp(min(self.loss, 700.0))

    def exact(self) -> dict[str, Any]:
        """What does not depend on the clock."""
        names = ("step", "epoch", "loss", "perplexity", "rate", "gradient_norm", "skipped")
        return {name: getattr(self, name) for name in names} | ({"parts": self.parts} if self.parts else {})

    def measured(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "seconds": self.seconds,
            "source_tokens_per_second": self.source_rate,
            "target_tokens_per_second": self.target_rate,
            "padding": self.padding,
        }

    def __str__(self) -> str:
        cost = "all updates skipped" if self.loss is None else f"loss {self.loss:.3f} · ppl {self.perplexity:.2f}"
        return (
            f"step {self.step:,}/{self.steps:,} · epoch {self.epoch} · {cost}"
            f" · {self.source_rate:,.0f} source and {self.target_rate:,.0f} target tokens/s"
            f" · padding {self.padding:.0%} · rate {self.rate:.2e} · {clock(self.left)} left"
        )


class Reporter(Protocol):
    """Who listens to a training."""

    def say(self, text: str) -> None: ...
    def line(self, line: IntervalFigures) -> None: ...
    def validation(self, step: int, result: Validation, best: bool) -> None: ...
    def close(self) -> None: ...


class ConsoleReporter:
    """A reporter for people. It respects NO_COLOR and pipes, as rich does."""

    def __init__(self, screen: Console | None = None):
        self.console = screen or console()
        self._bar: Progress | None = None

    def say(self, text: str) -> None:
        self.console.print(Text(text))

    def line(self, line: IntervalFigures) -> None:
        if not self.console.is_terminal:
            self.say(str(line))
            return
        if self._bar is None:
            columns = BarColumn(bar_width=20), TextColumn("{task.description}", markup=False)
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._bar.add_task("", total=line.steps)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=line.step, total=line.steps, description=str(line))

    def validation(self, step: int, result: Validation, best: bool) -> None:
        figures = " · ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in result.figures.items())
        self.say(f"── validation at step {step:,}: {figures}{' · best so far' if best else ''}")
        for sample in result.samples:
            self.say(f"   {sample.source}\n   → {sample.output}\n   = {sample.reference}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Silent:
    """A reporter that says nothing."""

    def say(self, text: str) -> None: ...
    def line(self, line: IntervalFigures) -> None: ...
    def validation(self, step: int, result: Validation, best: bool) -> None: ...
    def close(self) -> None: ...
