"""The contract of parts that draw random numbers: they draw from the generator that they are given."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from contracts.checks.common import assert_close
from contracts.checks.running import random_inputs, run_model
from saccade.models.assemble import Model
from saccade.parts.randomness import set_generator


def check_draws_from_its_generator(model: Model) -> None:
    """With a generator of their own, the parts of a model neither read nor change torch's global generator. `model`
    must draw something."""
    generator, inputs = torch.Generator(), random_inputs(model)
    set_generator(model.train(), generator)

    def hidden(own_seed: int, global_seed: int) -> Tensor:
        generator.manual_seed(own_seed)
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        outputs = run_model(model, inputs)
        assert torch.equal(torch.get_rng_state(), before), "a part draws from torch's global generator"
        return outputs.hidden

    first = hidden(1, 1)
    assert torch.equal(hidden(1, 2), first), "the result depends on torch's global generator"
    assert not torch.equal(hidden(2, 1), first), "the result does not depend on the generator of the model"


def check_stochastic_depth(make: Callable[[float], Any], rate: float) -> None:
    """Whole rows are zero at the rate, the mean stays, and evaluation changes nothing."""
    torch.manual_seed(0)
    rows = 1 << 14
    x = torch.full((rows, 2, 3), 5.0, requires_grad=True)
    part = make(rate).train()
    y = part(x)
    dropped = (y.detach() == 0).flatten(1)
    assert torch.equal(dropped.all(1), dropped.any(1)), "part of a row is dropped"
    noise = 5 * math.sqrt(rate * (1 - rate) / rows)
    assert abs(float(dropped.float().mean()) - rate) <= noise, "the share of dropped rows is not the rate"
    kept = y.detach()[~dropped.any(1)]
    assert_close(kept, torch.full_like(kept, 5 / (1 - rate)), "rows that stay, scaled", 1e-6)
    y.sum().backward()
    assert x.grad is not None
    assert_close(x.grad, y.detach() / 5, "the gradient")
    assert torch.equal(part.eval()(x), x), "rows are dropped in evaluation mode"
