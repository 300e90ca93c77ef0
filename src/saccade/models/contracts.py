"""The contracts of the two sides of a model: encoder and decoder."""

from typing import Protocol

from torch import Tensor

from saccade.parts.embeddings import Embedding
from saccade.places import DecoderState, Memory
from saccade.shapes import Ids, Keep, States


class Encoder(Protocol):
    """Encodes whole sequences. `longest`: the maximum sequence length, None if there is no limit. `keeps_layers`:
    whether memories have the states of all layers; they need several times the memory of those of the last."""

    embedding: Embedding
    keeps_layers: bool

    @property
    def longest(self) -> int | None: ...
    def encode(self, values: Tensor, keep: Keep | None) -> Memory: ...


class Decoder(Protocol):
    """Decodes token by token.

    It is built with `cross_attention` if there is an encoder. A decoder that also reads the encoder's summary takes the
    wiring `reads_summary`; for other decoders the encoder makes none.

    `start` returns the state before the first token. `step` takes one token per row, a prefix or the whole target, and
    returns the hidden states and the next state; all rows advance by the same number of tokens. A whole target is one
    call of `step` with a fresh state, so training and search run the same code.
    """

    embedding: Embedding

    @property
    def longest(self) -> int | None: ...
    def start(self, memory: Memory | None, rows: int) -> DecoderState: ...
    def step(self, tokens: Ids, state: DecoderState, keep: Keep | None = None) -> tuple[States, DecoderState]: ...
