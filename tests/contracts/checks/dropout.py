"""The contract of dropout."""

import math
from collections.abc import Callable
from typing import Any

import torch

from contracts.checks.common import assert_close


def check_dropout(make: Callable[[float], Any], rate: float) -> None:
    """In training mode the share of zeros is the rate, rounded to 1/256, and the mean stays; in evaluation mode nothing
    changes. The bytes of one random word are independent."""
    torch.manual_seed(0)
    size = 1 << 17
    x = torch.full((8, size // 8), 3.0, requires_grad=True)
    dropout = make(rate)
    output = dropout.train()(x)
    y = output.detach()
    exact = round(rate * 256) / 256
    noise = 5 * math.sqrt(max(exact * (1 - exact), 1e-9) / size)
    assert abs(float((y == 0).float().mean()) - exact) <= noise, "the share of zeros is not the rate"
    assert abs(float(y.mean()) / 3 - 1) <= noise / (1 - exact) + 1e-6, "the mean changes"
    assert_close(y[y != 0], torch.full_like(y[y != 0], 3 / (1 - exact)), "values scaled by the rounded rate", 1e-6)
    eights = (y == 0).float().view(-1, 8)  # one random word decides about eight values
    assert (eights.mean(0) - exact).abs().max() <= 3 * noise + 1e-9, "the bytes of a word have different rates"
    if exact:
        spread = float(eights.sum(1).var()) / (8 * exact * (1 - exact))
        assert 0.9 < spread < 1.1, "the bytes of a word are correlated"
    output.sum().backward()
    assert_close(x.grad, y / 3, "the gradient (zero where the value was dropped)")
    if exact:
        assert not torch.equal(y, dropout(x)), "two calls drop the same values"
    assert torch.equal(dropout.eval()(x), x), "dropout is active in evaluation mode"
    odd = torch.ones(3, 7, 5)
    assert dropout.train()(odd).shape == odd.shape
