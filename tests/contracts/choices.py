"""Parametrizing tests by every choice of a table."""

from typing import Any

import pytest
import torch
from torch import nn

from contracts.checks.common import perturbed
from contracts.variants import every_choice, filled
from saccade.config import build


def every(table: Any) -> pytest.MarkDecorator:
    """Parametrize a test by `tree`: each kind of the table, and each single change of its options."""
    choices = list(every_choice(table))
    return pytest.mark.parametrize("tree", [tree for _, tree in choices], ids=[label for label, _ in choices])


def build_choice(table: Any, tree: Any, **wiring: Any) -> Any:
    """The part that a choice describes, with perturbed weights."""
    torch.manual_seed(0)
    part = build(filled(table, tree), "slot", **wiring)
    return perturbed(part) if isinstance(part, nn.Module) else part
