"""Shape annotations are checked while tests run; without these checks many contracts would not be tested."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError

from contracts.variants import DEFAULT, D
from saccade.data.batches import Padded
from saccade.decode.constraints import Constraints
from saccade.parts import ScaledDot, Sinusoidal
from saccade.places import Places
from saccade.tasks.losses import Loss

X = torch.zeros(3, 7, D)

WRONG: dict[str, Callable[[], Any]] = {
    "parts: no batch axis": lambda: Sinusoidal(D).embed(X[0], Places.of(X, None)),
    "parts: keys of another width": lambda: ScaledDot().join(torch.zeros(3, 2, 7, 11), torch.zeros(3, 2, 5, 13)),
    "models: vectors instead of ids": lambda: DEFAULT.fresh().decoder.step(X, {}),
    "places: two lengths": lambda: Places(
        torch.ones(3, 7, dtype=torch.bool), torch.zeros(3, 5, dtype=torch.long), False, 7
    ),
    "places: a float mask": lambda: Places.of(X, torch.ones(3, 7)),
    "decode: no axis of hypotheses": lambda: Constraints.of([5, 5, 5]).apply(torch.zeros(3, 13), 0),
    "tasks: a loss per token": lambda: Loss(torch.zeros(7), 7),
    "data.batches: two lengths": lambda: Padded(
        torch.zeros(3, 7, dtype=torch.long), torch.ones(3, 5, dtype=torch.bool)
    ),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_wrong_shape_raises_type_check_error(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeCheckError):
        call()
