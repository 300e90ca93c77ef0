"""What a training knows about itself beside its weights: everything that resuming needs, as JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from saccade.data.batches import Position
from saccade.errors import RunError


@dataclass
class Sums:
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
class Seconds:
    """What was measured, apart from what is exact."""

    total: float = 0.0
    interval: float = 0.0  # of the updates since the last log line


@dataclass
class State:
    """Where a training stands after `step` updates."""

    step: int = 0
    position: Position = field(default_factory=Position)
    sums: Sums = field(default_factory=Sums)
    best: float | None = None
    best_step: int | None = None
    stale: int = 0  # validations since the best one
    skipped: int = 0  # updates left out because a gradient was not finite
    in_a_row: int = 0
    seconds: Seconds = field(default_factory=Seconds)
    metrics_bytes: int = 0
    regular: list[int] = field(default_factory=list)  # checkpoints made by a validation, not by an interruption

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, tree: Any) -> "State":
        try:
            tree = {name: tree[name] for name in cls.__dataclass_fields__}
            return cls(
                **{
                    **tree,
                    "position": Position(**tree["position"]),
                    "sums": Sums(**tree["sums"]),
                    "seconds": Seconds(**tree["seconds"]),
                }
            )
        except (KeyError, TypeError) as error:
            raise RunError(f"the training state is not of this version of Saccade: {error}") from None

    def better(self, figure: float, best_by: str) -> bool:
        if self.best is None:
            return True
        return figure < self.best if best_by == "loss" else figure > self.best


Stop = Literal["", "updates", "minutes", "patience", "enough"]
