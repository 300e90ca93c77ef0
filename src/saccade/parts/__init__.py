"""Parts: small modules that fill the slots of a model. Each file holds one slot: its contract (a Protocol), its parts
and their table. The exceptions are `activations`, `dropout`, `randomness`, `inits` and `fast_linear`, which parts use.
Every part also works by itself."""

from saccade.parts.activations import ACTIVATIONS
from saccade.parts.cells import CELLS, RecurrentNet, gru, lstm, tanh
from saccade.parts.connections import CONNECTIONS, PostNorm, PreNorm
from saccade.parts.contexts import CONTEXTS, AtStart, EveryStep
from saccade.parts.dropout import Dropout, StochasticDepth
from saccade.parts.embeddings import EMBEDDINGS, SeriesEmbedding, TokenEmbedding
from saccade.parts.feed_forwards import FEED_FORWARDS, PlainFeedForward
from saccade.parts.heads import HEADS, LinearHead, TiedHead
from saccade.parts.mixers import MIXERS, MultiHead, Unprojected
from saccade.parts.normalizers import NORMALIZERS, Hard, Softmax, Sparsemax
from saccade.parts.norms import NORMS, LayerNorm
from saccade.parts.pools import POOLS, First, Last, Max, Mean
from saccade.parts.positions import NO_POSITION, POSITIONS, Learned, NoPosition, Position, Rotary, Sinusoidal, T5Bias
from saccade.parts.randomness import RandomModule
from saccade.parts.readouts import READOUTS, Attentional, Deep, PlainReadout
from saccade.parts.scores import SCORES, Additive, Dot, Multiplicative, ReducedRank, ScaledDot

__all__ = [
    "ACTIVATIONS",
    "CELLS",
    "CONNECTIONS",
    "CONTEXTS",
    "EMBEDDINGS",
    "FEED_FORWARDS",
    "HEADS",
    "MIXERS",
    "NORMS",
    "NORMALIZERS",
    "NO_POSITION",
    "POOLS",
    "POSITIONS",
    "READOUTS",
    "SCORES",
    "Additive",
    "AtStart",
    "Attentional",
    "Unprojected",
    "Deep",
    "Dot",
    "Dropout",
    "EveryStep",
    "First",
    "Hard",
    "Last",
    "LayerNorm",
    "Learned",
    "LinearHead",
    "Max",
    "Mean",
    "MultiHead",
    "Multiplicative",
    "NoPosition",
    "Position",
    "PlainReadout",
    "PlainFeedForward",
    "PostNorm",
    "PreNorm",
    "RandomModule",
    "RecurrentNet",
    "ReducedRank",
    "Rotary",
    "ScaledDot",
    "SeriesEmbedding",
    "Sinusoidal",
    "Softmax",
    "StochasticDepth",
    "Sparsemax",
    "T5Bias",
    "TiedHead",
    "TokenEmbedding",
    "gru",
    "lstm",
    "tanh",
]
