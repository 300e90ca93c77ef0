"""The contracts of the two sides of a model: an encoder reads, a decoder writes."""

from typing import Any, Protocol

from torch import Tensor

from saccade.parts.embeddings import Embedding
from saccade.places import Memory
from saccade.shapes import Ids, Keep, States


class Encoder(Protocol):
    """Reads a whole sequence. `longest` is how many places it can hold (None: any number)."""

    embedding: Embedding

    @property
    def longest(self) -> int | None: ...
    def encode(self, values: Tensor, keep: Keep | None) -> Memory: ...


class Decoder(Protocol):
    """Writes token after token: `start` before the first, then `step` with one token, a prefix or the whole target.
    All rows advance together; the whole pass is one long step from a fresh state."""

    embedding: Embedding

    @property
    def longest(self) -> int | None: ...
    def start(self, memory: Memory | None, rows: int) -> Any: ...
    def step(self, tokens: Ids, state: Any, keep: Keep | None = None) -> tuple[States, Any]: ...
