"""How weights begin."""

from torch import nn


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A linear map that keeps the variance both ways (Glorot & Bengio 2010), with a bias of zero."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def table(rows: int, dim: int) -> nn.Embedding:
    """An embedding table whose rows have length one on average, so that tied logits start small."""
    embedding = nn.Embedding(rows, dim)
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    return embedding
