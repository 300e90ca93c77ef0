"""Picks: from scores to weights. Soft picks let the fused kernel do both."""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

import torch
from torch import nn

from saccade.config import Slot
from saccade.shapes import MayLook, Scores


class Pick(Protocol):
    """The contract of a pick. `soft`: exactly a softmax, so the fused kernel may do it."""

    soft: bool

    def __call__(self, scores: Scores, keep: MayLook | None) -> Scores: ...


def hide(scores: Scores, keep: MayLook | None) -> Scores:
    """The one place where a mask becomes −∞."""
    return scores if keep is None else scores.masked_fill(~keep, -math.inf)


class Soft(nn.Module):
    """weights = softmax(scores). A row that may look at nothing gives zeros."""

    soft = True

    def forward(self, scores: Scores, keep: MayLook | None) -> Scores:
        weights = torch.softmax(hide(scores, keep), -1)
        return weights if keep is None else weights.masked_fill(~keep, 0.0)  # softmax of nothing is NaN


PICKS: dict[str, Callable[..., nn.Module]] = {"soft": Soft}

PickSlot = Annotated[Callable[..., nn.Module], Slot(PICKS)]
