"""What an encoder or a decoder reads. The codec that turns rows into values owns this description, and the embedding
is built for it."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Tokens:
    """Token ids [T] of a vocabulary of this size."""

    is_text: ClassVar[bool] = True
    vocabulary: int


@dataclass(frozen=True)
class Frames:
    """Frames [T F] of a numeric series, each of this many values."""

    is_text: ClassVar[bool] = False
    width: int


Input = Tokens | Frames
