"""Layers and parameters with their initialization."""

import math

import torch
from torch import nn

from saccade.parts.fast_linear import FastLinear


def linear_layer(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A linear layer with Xavier-uniform weights (Glorot & Bengio 2010) and zero bias."""
    layer = FastLinear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def embedding_table(rows: int, dim: int) -> nn.Embedding:
    """An embedding table of N(0, 1/dim) entries: rows have length about 1, so tied logits start small."""
    embedding = nn.Embedding(rows, dim)
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    return embedding


def per_head(heads: int, inputs: int, outputs: int) -> nn.Parameter:
    """One Xavier-uniform matrix per head [heads, inputs, outputs], used as x @ weight."""
    weight = nn.Parameter(torch.empty(heads, inputs, outputs))
    bound = math.sqrt(6 / (inputs + outputs))
    nn.init.uniform_(weight, -bound, bound)
    return weight
