"""Every part that draws random numbers draws them from the generator that it is given."""

from typing import Any

import pytest
import torch

from contracts.checks.common import assert_close, perturbed
from contracts.checks.randomness import check_draws_from_its_generator, check_stochastic_depth
from contracts.toy_parts import ToyRouter
from contracts.variants import DEFAULT, NO_DROPOUT, VARIANTS, D, T, Variant, named
from saccade.models.recurrent import RecurrentEncoder
from saccade.parts import CONNECTIONS, FEED_FORWARDS, Dropout, StochasticDepth
from saccade.places import Places

EVERY_DROPOUT = dict.fromkeys(NO_DROPOUT, 0.5)


def with_block(**keys: Any) -> Variant:
    """The default variant with other parts in the blocks of both sides."""
    sides = {side: DEFAULT.tree[side] for side in ("encoder", "decoder")}
    return DEFAULT.changed(**{name: side | {"block": side["block"] | keys} for name, side in sides.items()})


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_model_with_dropout_draws_from_its_generator(variant: Variant) -> None:
    check_draws_from_its_generator(variant.changed(dropout=EVERY_DROPOUT).fresh())


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_stochastic_depth_draws_from_its_generator(connection: str) -> None:
    check_draws_from_its_generator(with_block(connection={"kind": connection, "stochastic_depth": 0.5}).fresh())


def test_hard_attention_draws_from_its_generator() -> None:
    check_draws_from_its_generator(named("hard-additive").fresh())


def test_jitter_of_a_router_draws_from_its_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEED_FORWARDS, "router", ToyRouter)
    check_draws_from_its_generator(with_block(feed_forward={"kind": "router", "jitter": 0.5}).fresh())


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_stochastic_depth_drops_whole_rows(rate: float) -> None:
    check_stochastic_depth(StochasticDepth, rate)


@pytest.mark.parametrize(("connection", "is_post"), [("pre", False), ("post", True)])
def test_dropped_branch_leaves_its_input(connection: str, is_post: bool) -> None:
    torch.manual_seed(0)
    part = CONNECTIONS[connection](D, stochastic_depth=0.5).train()
    x = torch.randn(40, T, D)
    y = part(x, lambda h: torch.full_like(h, 3.0))
    unchanged = (y == (part.norm(x) if is_post else x)).flatten(1).all(1)
    assert 5 < int(unchanged.sum()) < 35
    assert_close(y[~unchanged], (part.norm(x + 6) if is_post else x + 6)[~unchanged], "rows that keep the branch")


@pytest.mark.parametrize("cell", ["gru", "lstm", "tanh"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_recurrent_net_computed_layer_by_layer_equals_that_of_torch(
    cell: str, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout and a generator of its own, layers are computed one by one."""
    monkeypatch.setattr(Dropout, "forward", lambda self, x: x)
    base = named("recurrent-gru-before")
    options = base.tree["encoder"] | {"cell": cell, "depth": 3, "bidirectional": bidirectional}
    variant = base.changed(encoder=options, dropout=EVERY_DROPOUT)
    encoder = perturbed(variant.fresh()).encoder
    assert isinstance(encoder, RecurrentEncoder)
    net = encoder.cell
    x, keep = torch.randn(3, 5, D), torch.arange(5) < torch.tensor([5, 2, 4])[:, None]
    for places in (Places.of(x, keep), Places.of(x, None)):
        expected, expected_state = net.eval().whole(x, places)
        net.train()
        net.dropout.generator = torch.Generator()
        y, state = net.whole(x, places)
        assert_close(y, expected, "the outputs")
        if not bidirectional:
            again, _ = net.whole(x, places, state)
            net.eval()
            expected_again, _ = net.whole(x, places, expected_state)
            assert_close(again, expected_again, "the outputs after a state")
        net.dropout.generator = None
