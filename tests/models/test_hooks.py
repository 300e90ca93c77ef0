"""A mixer or block that cannot be causal, or cannot apply the position encoding, is refused where it would have to."""

from typing import Any

import pytest
from torch import Tensor, nn

from contracts.variants import DEFAULT, Variant
from saccade.errors import ConfigError
from saccade.models.blocks import BLOCKS, Standard
from saccade.parts import MIXERS
from saccade.places import Memory, Places


class WithoutHooks(nn.Module):
    """A mixer that takes neither `causal` nor `position`."""

    def __init__(self, dim: int):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def start(self, memory: Memory | None, rows: int) -> None:
        return None

    def forward(self, x: Tensor, places: Places, state: None) -> tuple[Tensor, None]:
        return self.linear(x), None


def block_without_hooks(dim: int, cross_attention: bool = False) -> Standard:
    return Standard(dim, cross_attention=cross_attention)


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIXERS, "toy", WithoutHooks)
    monkeypatch.setitem(BLOCKS, "toy", block_without_hooks)


def with_changes(side: str, block: Any = None, **changes: Any) -> Variant:
    of_default = DEFAULT.tree[side]["block"]
    changes["block"] = block if isinstance(block, str) else of_default | (block or {})
    return DEFAULT.changed(**{side: DEFAULT.tree[side] | changes})


ATTENTION = r"does not apply the position encoding, which acts inside attention; choose another kind, or a position"
REFUSED = {
    "not causal": (with_changes("decoder", block={"self": "toy"}), "decoder.block.self: is not causal"),
    "not causal block": (with_changes("decoder", block="toy"), "decoder.block: is not causal"),
    "rotary": (
        with_changes("encoder", position="rotary", block={"self": "toy"}),
        f"encoder.block.self: {ATTENTION}",
    ),
    "t5": (with_changes("encoder", position="t5", block={"self": "toy"}), f"encoder.block.self: {ATTENTION}"),
    "block": (with_changes("encoder", position="t5", block="toy"), f"encoder.block: {ATTENTION}"),
    "exception": (
        with_changes("encoder", position="t5", exceptions=[{"at": [1], "self": "toy"}]),
        f"encoder.exceptions.0.self: {ATTENTION}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_part_that_cannot_honor_a_hook_is_refused(name: str) -> None:
    variant, message = REFUSED[name]
    with pytest.raises(ConfigError, match=rf"^model\.{message}"):
        variant.fresh()


def test_part_without_hooks_fits_where_none_is_needed() -> None:
    with_changes("encoder", block={"self": "toy"}).fresh()
    with_changes("encoder", position="learned", block={"self": "toy"}).fresh()
    with_changes("decoder", position="rotary", block={"cross": "toy", "self": {"heads": 2}}).fresh()
