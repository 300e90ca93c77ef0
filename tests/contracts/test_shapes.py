"""The shapes that annotations promise are checked while tests run: without that, half of the contracts are silent."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError

from contracts.variants import DEFAULT, D
from saccade.data.batches import Padded
from saccade.decode.rules import Constraints
from saccade.parts import ScaledDot, Sinusoidal
from saccade.places import Places
from saccade.tasks.losses import Loss

X = torch.zeros(3, 7, D)

WRONG: dict[str, Callable[[], Any]] = {
    "parts: no batch": lambda: Sinusoidal(D).embed(X[0], Places.of(X, None)),
    "parts: another width": lambda: ScaledDot().join(torch.zeros(3, 2, 7, 11), torch.zeros(3, 2, 5, 13)),
    "models: vectors for ids": lambda: DEFAULT.fresh().decoder.step(X, {}),
    "places: two lengths": lambda: Places(
        torch.ones(3, 7, dtype=torch.bool), torch.zeros(3, 5, dtype=torch.long), False
    ),
    "places: a mask of floats": lambda: Places.of(X, torch.ones(3, 7)),
    "decode: no hypotheses": lambda: Constraints.of([5, 5, 5]).apply(torch.zeros(3, 13), 0),
    "tasks: a loss for each token": lambda: Loss(torch.zeros(7), 7),
    "data.batches: two lengths": lambda: Padded(
        torch.zeros(3, 7, dtype=torch.long), torch.ones(3, 5, dtype=torch.bool)
    ),
}


@pytest.mark.parametrize("act", WRONG.values(), ids=WRONG)
def test_a_wrong_shape_is_noticed(act: Callable[[], Any]) -> None:
    with pytest.raises(TypeCheckError):
        act()
