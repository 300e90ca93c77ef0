"""Activation functions by name."""

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Activation = Literal["relu", "gelu", "swish"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,  # max(0, x)
    "gelu": F.gelu,  # x·Φ(x), Hendrycks & Gimpel 2016
    "swish": F.silu,  # x·σ(x), Ramachandran, Zoph & Le 2017
}
