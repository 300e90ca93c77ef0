"""Parts: small modules that fill the slots of a model. One file = one slot = one contract; all work alone."""

from saccade.parts.activations import ACTIVATIONS
from saccade.parts.connections import CONNECTIONS, PostNorm, PreNorm
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import EMBEDDINGS, Series, Words
from saccade.parts.feed_forwards import FEED_FORWARDS, PlainFeedForward
from saccade.parts.heads import HEADS, Linear, Tied
from saccade.parts.mixers import MIXERS, MultiHead
from saccade.parts.norms import NORMS, LayerNorm
from saccade.parts.picks import PICKS, Soft
from saccade.parts.pools import POOLS, First, Last, Max, Mean
from saccade.parts.positions import POSITIONS, Learned, Sinusoidal
from saccade.parts.scores import SCORES, Dot, ScaledDot

__all__ = [
    "ACTIVATIONS",
    "CONNECTIONS",
    "EMBEDDINGS",
    "FEED_FORWARDS",
    "HEADS",
    "MIXERS",
    "NORMS",
    "PICKS",
    "POOLS",
    "POSITIONS",
    "SCORES",
    "Dot",
    "Dropout",
    "First",
    "Last",
    "LayerNorm",
    "Learned",
    "Linear",
    "Max",
    "Mean",
    "MultiHead",
    "PlainFeedForward",
    "PostNorm",
    "PreNorm",
    "ScaledDot",
    "Series",
    "Sinusoidal",
    "Soft",
    "Tied",
    "Words",
]
