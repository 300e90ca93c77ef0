"""The state of a training besides weights and optimizer: everything that resuming needs, as JSON."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from saccade.data.batches import SamplerState
from saccade.errors import RunError
from saccade.tasks.task import Metric


@dataclass
class Elapsed:
    """Wall-clock seconds."""

    total: float = 0.0
    interval: float = 0.0  # of the updates since the last log line, without validations


@dataclass
class TrainingState:
    """The state after `step` updates.

    `sums` are sums over the updates since the last log line: cost, count, tokens, gradient norms and the auxiliary
    losses (see `loop.batch_sums`). A log line shows their means.
    """

    step: int = 0
    position: SamplerState = field(default_factory=SamplerState)
    sums: dict[str, float] = field(default_factory=dict)
    best: float | None = None  # the best score so far
    best_step: int | None = None
    validations_since_best: int = 0
    skipped: int = 0  # updates skipped because a gradient was NaN or infinite
    consecutive_skips: int = 0
    seconds: Elapsed = field(default_factory=Elapsed)
    metrics_bytes: int = 0  # the size of metrics.jsonl
    regular: list[int] = field(default_factory=list)  # steps of checkpoints made by validations, not by interruptions

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, tree: Any, checkpoint: Path) -> "TrainingState":
        try:
            values = {name: tree[name] for name in cls.__dataclass_fields__}
            values["position"] = SamplerState(**values["position"])
            values["seconds"] = Elapsed(**values["seconds"])
            values["sums"] = {name: value + 0.0 for name, value in values["sums"].items()}
            return cls(**values)
        except (AttributeError, KeyError, TypeError) as error:
            raise RunError(
                f"{checkpoint}: its training state does not fit this version of Saccade ({error!r}); resume with the "
                "version that wrote it, or train a new run with --run DIR"
            ) from None

    def add(self, sums: dict[str, float]) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def record_score(self, score: float, metric: Metric) -> bool:
        """Record the score of a validation; True if it is the best so far."""
        if self.best is not None and not metric.is_better(score, than=self.best):
            self.validations_since_best += 1
            return False
        self.best, self.best_step, self.validations_since_best = score, self.step, 0
        return True
