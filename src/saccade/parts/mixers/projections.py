"""The fused form of multi-head attention: its projection weights."""

from torch import Tensor

from saccade.parts.positions import NO_POSITION, Position
from saccade.parts.scores import AttentionScore


class AttentionProjections:
    """The projection weights of an attention with dot-product scores and softmax: those to queries, keys and values as
    one matrix, and the output projection. `width` is the width K of a head.

    The scale of the scores is folded into the query weights, unless the position encoding works on the queries before
    they are scaled: then `score` prepares them. This is not a dataclass, because `select` would treat a dataclass as
    decoder state.
    """

    def __init__(
        self,
        heads: int,
        width: int,
        qkv_weight: Tensor,
        qkv_bias: Tensor,
        out: Tensor,
        out_bias: Tensor,
        position: Position = NO_POSITION,
        score: AttentionScore | None = None,
    ):
        self.heads, self.width, self.position, self.score = heads, width, position, score
        self.qkv_weight, self.qkv_bias, self.out, self.out_bias = qkv_weight, qkv_bias, out, out_bias

    @property
    def query(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the query projection."""
        return self.qkv_weight[: self.heads * self.width], self.qkv_bias[: self.heads * self.width]

    @property
    def key_value(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the key and value projections."""
        return self.qkv_weight[self.heads * self.width :], self.qkv_bias[self.heads * self.width :]
