"""Random numbers in parts: every part that draws them is a RandomModule."""

import torch
from torch import nn


class RandomModule(nn.Module):
    """A module that draws random numbers in training. It passes `self.generator` to each function of torch that draws:
    None is torch's global generator; where replicas run in threads, each replica has a generator of its own, so that
    the order in which the threads run does not matter. Replicas run in threads only on the CPU; elsewhere the generator
    is None, so `F.dropout`, which takes none, may be used there."""

    generator: torch.Generator | None = None


def set_generator(model: nn.Module, generator: torch.Generator | None) -> None:
    """Let all parts of a model draw from this generator."""
    for part in model.modules():
        if isinstance(part, RandomModule):
            part.generator = generator
