"""The legend of axis letters, once for the whole package. Tests check every annotation by machine.

B batch · T queries or target · S keys or source · D model width · H heads · K width per head
F inner width · V vocabulary · N hypotheses of a beam · n rows of whatever kind. Batch first, always.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Ids = Int[Tensor, "B T"]
Keep = Bool[Tensor, "B T"]
States = Float[Tensor, "B T D"]
Heads = Float[Tensor, "B H T K"]
Prepared = Float[Tensor, "B H T P"]  # what a score makes of queries or keys
Scores = Float[Tensor, "B H T S"]
AttentionMask = Bool[Tensor, "#B #H #T S"]

__all__ = ["Bool", "Float", "Heads", "Ids", "Int", "Keep", "AttentionMask", "Prepared", "Scores", "States"]
