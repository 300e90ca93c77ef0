"""A feed-forward that routes: it gets the places, notes a loss for each position, and decodes step by step."""

from typing import Any

import pytest
import torch

from contracts.checks.common import assert_differs, perturbed
from contracts.checks.decoding import check_incremental_decoding, check_prompts_of_unequal_length
from contracts.checks.fused import check_fused_model
from contracts.checks.losses import assert_losses_are_sums
from contracts.checks.masking import check_padding_has_no_effect
from contracts.checks.models import check_gradients_reach_all_weights, check_shapes
from contracts.checks.pointwise import check_feed_forward
from contracts.checks.running import random_inputs, small_corpus, without_sampling
from contracts.toy_parts import BALANCE, ToyHalvingStack, ToyNotingHead, ToyRouter
from contracts.variants import DEFAULT, B, D
from saccade.decode.fused import FusedDecoder, can_fuse_decoder
from saccade.models.assemble import Model
from saccade.models.stacks import STACKS
from saccade.notes import listen
from saccade.parts import FEED_FORWARDS
from saccade.places import Places
from saccade.tasks.losses import next_token_loss
from saccade.tasks.translation import Translation

ROUTERS = {f"{side}.layers.{layer}.feed_forward" for side in ("encoder", "decoder") for layer in (0, 1)}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """The default model with routers on both sides."""
    monkeypatch.setitem(FEED_FORWARDS, "router", ToyRouter)
    sides = {side: _with_router(DEFAULT.tree[side]) for side in ("encoder", "decoder")}
    return perturbed(DEFAULT.changed(**sides).fresh())


def _with_router(side: dict[str, Any]) -> dict[str, Any]:
    return side | {"block": side["block"] | {"feed_forward": "router"}}


def test_router_is_a_feed_forward() -> None:
    torch.manual_seed(0)
    check_feed_forward(perturbed(ToyRouter(D)))


@pytest.mark.parametrize(
    "check",
    [
        check_shapes,
        check_gradients_reach_all_weights,
        check_incremental_decoding,
        check_prompts_of_unequal_length,
        check_padding_has_no_effect,
    ],
)
def test_model_with_routers_satisfies_contract(model: Model, check: Any) -> None:
    check(model)


def test_loss_of_routers_is_a_sum_over_positions_that_are_not_padding(model: Model) -> None:
    assert_losses_are_sums(model.train(), {"cost"} | ROUTERS)


def test_loss_of_routers_is_masked_where_a_stack_halves_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second router of the encoder reads every second position."""
    monkeypatch.setitem(FEED_FORWARDS, "router", ToyRouter)
    monkeypatch.setitem(STACKS, "halving", ToyHalvingStack)
    encoder = _with_router(DEFAULT.tree["encoder"]) | {"stack": "halving"}
    model = perturbed(DEFAULT.changed(encoder=encoder).fresh())
    assert_losses_are_sums(model.train(), {"cost"} | {name for name in ROUTERS if name.startswith("encoder")})


def test_policy_loss_is_computed_where_a_stack_halves_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STACKS, "halving", ToyHalvingStack)
    block = DEFAULT.tree["encoder"]["block"] | {"self": {"heads": 2, "normalizer": "hard"}}
    model = perturbed(DEFAULT.changed(encoder=DEFAULT.tree["encoder"] | {"block": block, "stack": "halving"}).fresh())
    names = {f"encoder.layers.{layer}.self.normalizer" for layer in (0, 1)}
    with without_sampling(model.train()):
        assert_losses_are_sums(model, {"cost"} | names)


def test_loss_that_a_head_notes_is_trained() -> None:
    model = perturbed(DEFAULT.fresh()).train()
    model.head = ToyNotingHead(model.head)
    assert_losses_are_sums(model, {"cost", "head"})
    loss = next_token_loss(model, small_corpus(model).batch(range(4)))
    assert loss.logged["head"] == loss.count


def test_loss_of_a_router_is_that_of_its_positions(model: Model) -> None:
    batch = small_corpus(model).batch(range(4))
    assert batch.source is not None
    with listen(model.train(), "loss") as notes:
        model.encode(batch.source.values, batch.source.keep)
    name = "encoder.layers.0.feed_forward"
    noted, keep = notes.maps()[name], batch.source.keep
    assert keep is not None
    loss = Translation().loss(model, batch)
    assert loss.logged[name] == pytest.approx(float(noted[:, 0, :, 0][keep].sum().detach()), rel=1e-5)
    assert BALANCE / 2 * int(keep.sum()) <= loss.logged[name] <= BALANCE * int(keep.sum())


def test_loss_of_routers_is_trained(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = small_corpus(model).batch(range(4))

    def total_and_gradient() -> tuple[float, torch.Tensor]:
        loss = Translation(smoothing=0.0).loss(model.train(), batch)
        assert float(loss.total.detach()) == pytest.approx(sum(loss.logged.values()), rel=1e-5)
        router = model.encoder.layers[0].feed_forward
        return float(loss.total.detach()), torch.autograd.grad(loss.total, router.route.weight)[0]

    total, gradient = total_and_gradient()
    monkeypatch.setattr("contracts.toy_parts.BALANCE", 0.0)
    unbalanced_total, unbalanced_gradient = total_and_gradient()
    assert total > unbalanced_total
    assert_differs(gradient, unbalanced_gradient, "the noted loss")


def test_fused_model_with_routers_equals_its_modules(model: Model) -> None:
    assert can_fuse_decoder(model.eval())
    check_fused_model(model)


@torch.inference_mode()
def test_fused_step_gives_feed_forward_modules_the_places(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where every other part has a fused form and needs no places."""
    seen: list[Places] = []
    forward = ToyRouter.forward

    def recording(self: ToyRouter, x: torch.Tensor, places: Places) -> torch.Tensor:
        seen.append(places)
        return forward(self, x, places)

    model.eval()
    inputs = random_inputs(model)
    decoder = FusedDecoder(model)
    state = decoder.start(model.encode(inputs.source, inputs.source_keep), B)
    monkeypatch.setattr(ToyRouter, "forward", recording)
    for t in range(3):
        _, state = decoder.step(inputs.target[:, t], state)
    assert [places.at.tolist() for places in seen] == [[[t]] * B for t in range(3) for _ in decoder.layers]
