"""Helpers of all contract checks: perturbed weights, comparisons of tensors, padding masks, decoder states."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from contracts.variants import B, S, T
from saccade.places import Progress

SOURCE_LENGTHS, TARGET_LENGTHS = (S, 3, 1), (T, 4, 1)
CHUNKS = ((0, 3), (3, 4), (4, 5), (5, 7))  # how T target positions are decoded: a prefix, two single steps, a chunk


def perturbed(module: nn.Module, seed: int = 0, by: float = 0.3) -> Any:
    """The module with noise added to all weights, so that no check passes only because a bias is 0 or a gain is 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight += by * torch.randn(weight.shape, generator=generator)
    return module


def assert_close(actual: Tensor, expected: Tensor, name: str, tolerance: float = 1e-4) -> None:
    assert actual.shape == expected.shape, f"{name}: shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    wrong = ~torch.isclose(actual, expected, rtol=tolerance, atol=tolerance)
    assert not wrong.any(), f"{name}: {int(wrong.sum())} values differ, by up to {(actual - expected).abs().max():.2g}"


def assert_differs(actual: Tensor, other: Tensor, cause: str) -> None:
    """The inputs of a check are only suitable if `cause` changes the result."""
    assert not torch.allclose(actual, other, rtol=1e-3, atol=1e-3), (
        f"{cause} has no effect, so the check proves nothing"
    )


def padding_mask(lengths: Sequence[int]) -> Tensor:
    """[B T] for sequences of these lengths: True = token, False = padding on the right."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def progress(*ats: int) -> Progress:
    """The progress of rows whose next tokens are at these positions; a single one is that of all B rows."""
    return Progress(torch.tensor(ats * (B if len(ats) == 1 else 1)), max(ats))


def children(state: Any) -> list[Any]:
    """The direct entries of a nested decoder state."""
    if isinstance(state, Mapping):
        return list(state.values())
    if isinstance(state, tuple):
        return list(state)
    return [getattr(state, field.name) for field in fields(state)] if is_dataclass(state) else []


def tensors(state: Any) -> list[Tensor]:
    """All tensors of a nested decoder state."""
    if isinstance(state, Tensor):
        return [state]
    return [tensor for child in children(state) for tensor in tensors(child)]
