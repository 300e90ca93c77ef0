"""Initializations: what a model's weights are before training. A part initializes its own weights when it is built; an
initialization may then change them, by the name of the weight and its place in the model."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Protocol

from torch import nn

from saccade.config import Positive, Slot


@dataclass(frozen=True)
class NamedWeight:
    """A weight of a model. `layer` is the number of its layer, None outside of a stack; `depth` and `branches` are the
    numbers of layers and of residual connections of its encoder or decoder, 0 outside of a stack."""

    name: str
    weight: nn.Parameter
    layer: int | None
    depth: int
    branches: int


class Initialization(Protocol):
    """The contract of an initialization: it changes a weight in place, or leaves it as it is. It draws from torch's
    global generator only, so that all ranks have the same weights."""

    def __call__(self, weight: NamedWeight) -> None: ...


class DefaultInitialization:
    """Each part initializes its own weights: Xavier-uniform matrices (Glorot & Bengio 2010), N(0, 1/D) embeddings."""

    def __call__(self, weight: NamedWeight) -> None:
        return


class GPT2Initialization:
    """N(0, std²) for the matrices of linear layers and the embedding tables; the matrices that end a residual branch
    are scaled by 1/√N for N residual branches (Radford et al. 2019, §2.3). N is 2 · depth, with cross-attention 3 ·
    depth. All other weights stay as they are, such as those of recurrent nets and scores. The paper does not scale
    embeddings by √D: use it with `embedding.scaled = false`."""

    def __init__(self, *, std: Positive = 0.02):
        self.std = std

    def __call__(self, weight: NamedWeight) -> None:
        if not weight.name.endswith(".weight") or weight.weight.dim() != 2:
            return
        ends_branch = weight.layer is not None and weight.name.endswith((".out.weight", ".down.weight"))
        nn.init.normal_(weight.weight, std=self.std / weight.branches**0.5 if ends_branch else self.std)


INITIALIZATIONS: dict[str, Callable[..., Initialization]] = {
    "default": DefaultInitialization,
    "gpt2": GPT2Initialization,
}

InitializationSlot = Annotated[Callable[..., Initialization], Slot(INITIALIZATIONS)]

LAYER = re.compile(r"(\w+)\.layers\.(\d+)\.(\w+)")


def named_weights(model: nn.Module) -> Iterator[NamedWeight]:
    """The weights of a model, each once, with their places."""
    parts = [match.groups() for name, _ in model.named_modules() if (match := LAYER.fullmatch(name))]
    layers = {(side, layer) for side, layer, _ in parts}
    for name, weight in model.named_parameters():
        match = LAYER.match(name)
        side = match[1] if match else ""
        depth = sum(other == side for other, _ in layers)
        branches = sum(other == side and part.startswith("residual_") for other, _, part in parts)
        yield NamedWeight(name, weight, int(match[2]) if match else None, depth, branches)


def initialize(model: nn.Module, initialization: Initialization) -> None:
    """Initialize all weights of a model."""
    for weight in named_weights(model):
        initialization(weight)
