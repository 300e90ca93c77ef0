"""What a training knows about itself beside its weights: everything that resuming needs, as JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from saccade.data.batches import SamplerState
from saccade.errors import RunError


@dataclass
class IntervalSums:
    """Sums since the last log line."""

    cost: float = 0.0
    count: int = 0
    source_tokens: int = 0
    real: int = 0  # places
    padded: int = 0
    norms: float = 0.0
    updates: int = 0
    parts: dict[str, float] = field(default_factory=dict)  # costs that parts of the model bring along, by name


@dataclass
class Elapsed:
    """What was measured, apart from what is exact."""

    total: float = 0.0
    interval: float = 0.0  # of the updates since the last log line


@dataclass
class TrainingState:
    """Where a training stands after `step` updates."""

    step: int = 0
    position: SamplerState = field(default_factory=SamplerState)
    sums: IntervalSums = field(default_factory=IntervalSums)
    best: float | None = None
    best_step: int | None = None
    validations_since_best: int = 0  # validations since the best one
    skipped: int = 0  # updates left out because a gradient was not finite
    consecutive_skips: int = 0
    seconds: Elapsed = field(default_factory=Elapsed)
    metrics_bytes: int = 0
    regular: list[int] = field(default_factory=list)  # checkpoints made by a validation, not by an interruption

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, tree: Any) -> "TrainingState":
        try:
            tree = {name: tree[name] for name in cls.__dataclass_fields__}
            return cls(
                **{
                    **tree,
                    "position": SamplerState(**tree["position"]),
                    "sums": IntervalSums(**tree["sums"]),
                    "seconds": Elapsed(**tree["seconds"]),
                }
            )
        except (KeyError, TypeError) as error:
            raise RunError(f"the training state is not of this version of Saccade: {error}") from None

    def better(self, figure: float, best_by: str) -> bool:
        if self.best is None:
            return True
        return figure < self.best if best_by == "loss" else figure > self.best


Stop = Literal["", "updates", "minutes", "patience", "stop_at"]
