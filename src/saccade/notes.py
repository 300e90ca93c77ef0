"""Notes: side outputs that parts record for listeners. The forward result never depends on them.

Kinds of notes, each a tensor with one entry per query position along axis 2:

- `weights`: attention weights [B H T S], for `capture`. Attention computes them only while a listener is registered;
  otherwise the fused kernel runs, which never forms them.
- `loss`: an auxiliary loss [B H T S] or [B 1 T 1], added to the task's loss.
- `sampled`: log-probability and entropy of a sampled action [B H T 2], for the REINFORCE loss of hard attention.

`saccade.tasks.losses` listens for `loss` and `sampled` in every training step, so a part that needs an auxiliary loss
works without any further setting in the recipe.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.errors import SaccadeError
from saccade.places import Places
from saccade.shapes import Bool

Listener = Callable[[Tensor, Places], None]


class RecordingModule(nn.Module):
    """A module that can record notes."""

    _listeners: Mapping[str, Listener] = {}

    def has_listener(self, kind: str) -> bool:
        """Whether notes of this kind are being recorded. Check it before computing an expensive note."""
        return kind in self._listeners

    def note(self, kind: str, value: Tensor, queries: Places) -> None:
        """Pass `value` to the listener of this kind, if there is one. Axis 2 of `value` is the positions `queries`."""
        if listener := self._listeners.get(kind):
            listener(value, queries)


class Notes:
    """Recorded notes by module name and pass.

    A module that is called step by step records new positions at each call; they are concatenated into one pass. If it
    records the same positions again, as a block does whose weights are shared by several layers, another pass starts.
    """

    def __init__(self) -> None:
        self._passes: dict[str, list[dict[int, tuple[Tensor, Places]]]] = {}

    def record(self, name: str, value: Tensor, queries: Places) -> None:
        first = queries.end - queries.at.shape[1]  # identifies the step
        passes = self._passes.setdefault(name, [])
        current = next((pieces for pieces in passes if first not in pieces), None)
        if current is None:
            passes.append({first: (value, queries)})
        else:
            current[first] = value, queries

    def maps(self) -> dict[str, Tensor]:
        """Module name (`name@1` for its second pass) → tensor, concatenated over positions."""
        return {name: _concatenated([value for value, _ in pieces]) for name, pieces in self._pieces()}

    def masks(self) -> dict[str, Bool[Tensor, "B T"]]:
        """The padding mask of the positions of each of `maps`."""
        return {name: torch.cat([queries.keep for _, queries in pieces], 1) for name, pieces in self._pieces()}

    def _pieces(self) -> Iterator[tuple[str, Collection[tuple[Tensor, Places]]]]:
        for name, passes in self._passes.items():
            for number, pieces in enumerate(passes):
                yield name if number == 0 else f"{name}@{number}", pieces.values()


def _concatenated(pieces: list[Tensor]) -> Tensor:
    """Concatenate along axis 2. Earlier steps had fewer keys: their missing columns are zero."""
    if len({piece.shape[0] for piece in pieces}) > 1:
        raise SaccadeError(
            "the batch size changed while notes were recorded (finished sentences leave the batch in search); "
            "capture a teacher-forced pass over the output instead"
        )
    widest = max(piece.shape[-1] for piece in pieces)
    return torch.cat([F.pad(piece, (0, widest - piece.shape[-1])) for piece in pieces], 2)


@contextmanager
def listen(model: nn.Module, kind: str) -> Iterator[Notes]:
    """Record one kind of note from all modules of the model inside the `with` block.

    Nested blocks of the same kind do not share: only the innermost one records.
    """
    notes = Notes()
    modules = [(name, m, m._listeners) for name, m in model.named_modules() if isinstance(m, RecordingModule)]
    for name, module, before in modules:
        module._listeners = {**before, kind: partial(notes.record, name)}
    try:
        yield notes
    finally:
        for _, module, before in modules:
            module._listeners = before


class Captured(Mapping[str, Tensor]):
    """Attention weights [B H T S] by module name; filled while the `capture` block runs."""

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
    """Capture the attention weights of every layer and head: `with capture(model) as maps: ...`.

    While it is active attention runs without the fused kernel.
    """
    with listen(model, "weights") as notes:
        yield Captured(notes)
