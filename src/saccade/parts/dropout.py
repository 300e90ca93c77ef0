"""Dropout (Srivastava et al. 2014) with a mask that is cheap to generate, and stochastic depth (Huang et al. 2016)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.errors import BuildError
from saccade.parts.randomness import RandomModule

MAX_DROPOUT_RATE = 0.998  # a mask has 8 random bits per element: a higher rate would be rounded to 1


class Dropout(RandomModule):
    """y = x · mask / (1 − rate) in training, y = x in evaluation (Srivastava et al. 2014).

    In a small model a random float per element would cost more than the rest of the layer. On the CPU the mask is
    therefore drawn as random bytes, eight from one 64-bit integer. This rounds the rate to a multiple of 1/256; the
    scale uses the rounded rate. On a GPU it is torch's dropout with the rounded rate, which takes no generator and
    draws from the global one of the device.
    """

    def __init__(self, rate: float):
        super().__init__()
        self.threshold = round(rate * 256)
        if not 0 <= self.threshold < 256:
            raise BuildError(f"the dropout rate must be from 0 to {MAX_DROPOUT_RATE}, got {rate}")

    def forward(self, x: Tensor) -> Tensor:
        if not self.drops:
            return x
        return x * self._mask(x) if x.is_cpu else F.dropout(x, self.threshold / 256)

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        """x + dropout(y), in one pass over both."""
        if self.drops and x.is_cpu and x.dtype is y.dtype:
            return torch.addcmul(x, y, self._mask(y))
        return x + self(y)

    @property
    def drops(self) -> bool:
        """Whether anything is dropped: in training, if the rate is not 0."""
        return self.training and self.threshold > 0

    def _mask(self, x: Tensor) -> Tensor:
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device)
        words.random_(-(2**63), None, generator=self.generator)
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.threshold
        return keep.to(x.dtype).mul_(256 / (256 - self.threshold))


class StochasticDepth(RandomModule):
    """y = x · m / (1 − rate) in training, with a single m of 0 or 1 for each row; y = x in evaluation. It drops whole
    residual branches (Huang et al. 2016, arXiv:1603.09382), each row for itself. The paper scales by 1 − rate in
    evaluation instead."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.rate):
            return x
        uniform = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device, generator=self.generator)
        return x * (uniform >= self.rate).to(x.dtype).div_(1 - self.rate)
