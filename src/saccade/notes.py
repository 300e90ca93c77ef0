"""What a part says beside its result. Results never read notes; whoever wants them listens.

Kinds of notes: `weights` (attention [B H T S]; noted only while someone listens, so the fused kernel is free the rest
of the time), `loss` (a cost [B H T S] or [B 1 T 1] that is added to the task's) and `wager` (what a random choice was
bet on, [B H T 2]: settled by the cost of what followed). `saccade.tasks.losses` hears the last two in every training,
so a part that brings a loss along needs nobody to remember it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.errors import SaccadeError
from saccade.places import Places

Listener = Callable[[Tensor, Places], None]


class Part(nn.Module):
    """A module that can note things."""

    _listeners: Mapping[str, Listener] = {}

    def has_listener(self, kind: str) -> bool:
        return kind in self._listeners

    def note(self, kind: str, value: Tensor, queries: Places) -> None:
        """Say something about the places `queries`, along axis 2 of `value`."""
        if hear := self._listeners.get(kind):
            hear(value, queries)


class Notes:
    """What was noted: by name of the part, by visit. The same places again are another visit (a shared block);
    new places from the same part are a loop over time and are joined."""

    def __init__(self) -> None:
        self._heard: dict[str, list[dict[int, Tensor]]] = {}

    def record(self, name: str, value: Tensor, queries: Places) -> None:
        first = int(queries.at[0, 0])
        visits = self._heard.setdefault(name, [])
        visit = next((v for v in visits if first not in v), None)
        if visit is None:
            visits.append({first: value})
        else:
            visit[first] = value

    def maps(self) -> dict[str, Tensor]:
        """Name (`…@1` for a second visit) → tensor, joined over time."""
        return {
            name if count == 0 else f"{name}@{count}": _joined(list(visit.values()))
            for name, visits in self._heard.items()
            for count, visit in enumerate(visits)
        }


def _joined(pieces: list[Tensor]) -> Tensor:
    """Along time; a step that could see fewer places saw nothing of the later ones."""
    if len({piece.shape[0] for piece in pieces}) > 1:
        raise SaccadeError("rows left the batch while someone listened; capture a forced pass over the output instead")
    widest = max(piece.shape[-1] for piece in pieces)
    return torch.cat([F.pad(piece, (0, widest - piece.shape[-1])) for piece in pieces], 2)


@contextmanager
def listen(model: nn.Module, kind: str) -> Iterator[Notes]:
    """Hear one kind of note from every part of the model for the length of a block."""
    notes = Notes()
    parts = [(name, part, part._listeners) for name, part in model.named_modules() if isinstance(part, Part)]
    for name, part, before in parts:
        part._listeners = {**before, kind: partial(notes.record, name)}
    try:
        yield notes
    finally:
        for _, part, before in parts:
            part._listeners = before


class Captured(Mapping[str, Tensor]):
    """Attention weights [B H T S] by the name of the attention, filled while the block runs."""

    def __init__(self, notes: Notes):
        self._notes = notes

    def __getitem__(self, name: str) -> Tensor:
        return self._notes.maps()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._notes.maps())

    def __len__(self) -> int:
        return len(self._notes.maps())


@contextmanager
def capture(model: nn.Module) -> Iterator[Captured]:
    """`with capture(model) as maps:` every attention of the model by name, all layers and heads."""
    with listen(model, "weights") as notes:
        yield Captured(notes)
