"""Parts: small modules that fill the slots of a model. Each file holds one slot: its contract (a Protocol), its parts
and their table. The exceptions are `activations`, `dropout`, `fast_linear`, `fused_forms`, `inits`, `randomness` and
`token_costs`, which parts use. Every part also works by itself."""

from saccade.parts.activations import ACTIVATIONS
from saccade.parts.cells import CELLS, RecurrentNet, gru, lstm, tanh
from saccade.parts.connections import CONNECTIONS, PostNorm, PreNorm
from saccade.parts.contexts import CONTEXTS, AtStart, EveryStep
from saccade.parts.dropout import Dropout, StochasticDepth
from saccade.parts.embeddings import EMBEDDINGS, SeriesEmbedding, TokenEmbedding
from saccade.parts.feed_forwards import FEED_FORWARDS, GatedFeedForward, PlainFeedForward
from saccade.parts.heads import HEADS, LinearHead, TiedHead
from saccade.parts.mixers import MIXERS, MultiHead, Unprojected
from saccade.parts.normalizers import NORMALIZERS, Hard, Softmax, Sparsemax
from saccade.parts.norms import NORMS, LayerNorm, RMSNorm
from saccade.parts.pools import POOLS, First, Last, Max, Mean
from saccade.parts.positions import NO_POSITION, POSITIONS, Learned, NoPosition, Position, Rotary, Sinusoidal, T5Bias
from saccade.parts.randomness import RandomModule
from saccade.parts.readouts import READOUTS, Attentional, Deep, PlainReadout
from saccade.parts.scores import SCORES, Additive, Dot, Multiplicative, ReducedRank, ScaledDot
from saccade.parts.token_costs import TokenCost

__all__ = [
    "ACTIVATIONS",
    "Additive",
    "AtStart",
    "Attentional",
    "CELLS",
    "CONNECTIONS",
    "CONTEXTS",
    "Deep",
    "Dot",
    "Dropout",
    "EMBEDDINGS",
    "EveryStep",
    "FEED_FORWARDS",
    "First",
    "GatedFeedForward",
    "HEADS",
    "Hard",
    "Last",
    "LayerNorm",
    "Learned",
    "LinearHead",
    "MIXERS",
    "Max",
    "Mean",
    "MultiHead",
    "Multiplicative",
    "NORMALIZERS",
    "NORMS",
    "NO_POSITION",
    "NoPosition",
    "POOLS",
    "POSITIONS",
    "PlainFeedForward",
    "PlainReadout",
    "Position",
    "PostNorm",
    "PreNorm",
    "READOUTS",
    "RMSNorm",
    "RandomModule",
    "RecurrentNet",
    "ReducedRank",
    "Rotary",
    "SCORES",
    "ScaledDot",
    "SeriesEmbedding",
    "Sinusoidal",
    "Softmax",
    "Sparsemax",
    "StochasticDepth",
    "T5Bias",
    "TiedHead",
    "TokenCost",
    "TokenEmbedding",
    "Unprojected",
    "gru",
    "lstm",
    "tanh",
]
