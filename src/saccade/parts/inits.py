"""How weights begin."""

import math

import torch
from torch import nn

from saccade.parts.fast_linear import FastLinear


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A linear map that keeps the variance both ways (Glorot & Bengio 2010), with a bias of zero."""
    layer = FastLinear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def table(rows: int, dim: int) -> nn.Embedding:
    """An embedding table whose rows have length one on average, so that tied logits start small."""
    embedding = nn.Embedding(rows, dim)
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    return embedding


def per_head(heads: int, inputs: int, outputs: int) -> nn.Parameter:
    """A matrix for each head, x @ weight, that keeps the variance both ways."""
    weight = nn.Parameter(torch.empty(heads, inputs, outputs))
    bound = math.sqrt(6 / (inputs + outputs))
    nn.init.uniform_(weight, -bound, bound)
    return weight
