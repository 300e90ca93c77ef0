"""Axis letters of the shape annotations. The tests check every annotated tensor at run time.

B batch · T queries or target positions · S keys or source positions · D model width · H heads · K width per head
V vocabulary · N hypotheses per sentence · n any number of rows · P width of queries and keys prepared by a score
F values per frame of a series · I cell input · G cell gates · W cell state · C context of a recurrent decoder

Tensors are batch-first. Padding is on the right. In boolean masks True means "real" or "may be attended to".
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Ids = Int[Tensor, "B T"]
Keep = Bool[Tensor, "B T"]  # padding mask: False = padding
States = Float[Tensor, "B T D"]
Heads = Float[Tensor, "B H T K"]
Prepared = Float[Tensor, "B H T P"]
Scores = Float[Tensor, "B H T S"]
AttentionMask = Bool[Tensor, "#B #H #T S"]

__all__ = ["AttentionMask", "Bool", "Float", "Heads", "Ids", "Int", "Keep", "Prepared", "Scores", "States"]
