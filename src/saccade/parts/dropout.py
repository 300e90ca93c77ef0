"""Dropout (Srivastava et al. 2014) with a mask that is cheap to draw."""

import torch
from torch import Tensor, nn

from saccade.errors import BuildError


class Dropout(nn.Module):
    """Zero each number with probability `rate` while training, and scale the rest so that the mean stays.

    Drawing a float for each number costs more than all else in a small model, so the mask is drawn as random
    bytes, eight from one 64-bit word. The rate is therefore rounded to 256ths, and the scale is that of the
    rounded rate.
    """

    def __init__(self, rate: float):
        super().__init__()
        self.threshold = round(rate * 256)
        self.generator: torch.Generator | None = None  # who draws, where several draw at once; None: torch's own
        if not 0 <= self.threshold < 256:
            raise BuildError(f"a dropout rate is from 0 to 255/256, got {rate}")

    def forward(self, x: Tensor) -> Tensor:
        return x * self._mask(x) if self._drops else x

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        """x + dropout(y), in one pass over both."""
        return torch.addcmul(x, y, self._mask(y)) if self._drops else x + y

    @property
    def _drops(self) -> bool:
        return self.training and self.threshold > 0

    def _mask(self, x: Tensor) -> Tensor:
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device)
        words.random_(-(2**63), None, generator=self.generator)
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.threshold
        return keep.to(x.dtype).mul_(256 / (256 - self.threshold))
