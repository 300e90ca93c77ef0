"""Parts: small modules that fill the slots of a model. One file = one slot = one contract; all work alone."""

from saccade.parts.activations import ACTIVATIONS
from saccade.parts.cells import CELLS, Recurrence, gru, lstm, tanh
from saccade.parts.connections import CONNECTIONS, PostNorm, PreNorm
from saccade.parts.contexts import CONTEXTS, AtStart, EveryStep
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import EMBEDDINGS, Series, Words
from saccade.parts.feed_forwards import FEED_FORWARDS, PlainFeedForward
from saccade.parts.heads import HEADS, Linear, Tied
from saccade.parts.mixers import MIXERS, Bare, MultiHead
from saccade.parts.norms import NORMS, LayerNorm
from saccade.parts.picks import PICKS, Hard, Soft, Sparsemax
from saccade.parts.pools import POOLS, First, Last, Max, Mean
from saccade.parts.positions import POSITIONS, Learned, Sinusoidal
from saccade.parts.readouts import READOUTS, Attentional, Deep, Plain
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
    "PICKS",
    "POOLS",
    "POSITIONS",
    "READOUTS",
    "SCORES",
    "Additive",
    "AtStart",
    "Attentional",
    "Bare",
    "Deep",
    "Dot",
    "Dropout",
    "EveryStep",
    "First",
    "Hard",
    "Last",
    "LayerNorm",
    "Learned",
    "Linear",
    "Max",
    "Mean",
    "MultiHead",
    "Multiplicative",
    "Plain",
    "PlainFeedForward",
    "PostNorm",
    "PreNorm",
    "Recurrence",
    "ReducedRank",
    "ScaledDot",
    "Series",
    "Sinusoidal",
    "Soft",
    "Sparsemax",
    "Tied",
    "Words",
    "gru",
    "lstm",
    "tanh",
]
