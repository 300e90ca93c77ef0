"""Every model can be trained in mixed precision: on the CPU, its loss and gradients in bfloat16 are those of float32 up
to rounding."""

import pytest
import torch
from torch import Tensor

from contracts.checks.common import perturbed
from contracts.checks.running import samples_attention, small_corpus
from contracts.test_models import every_variant
from contracts.variants import DEFAULT, Variant, named
from saccade.devices import CPU, Precision, is_mixed, mixed_precision
from saccade.models.assemble import Model
from saccade.notes import capture
from saccade.parts import fast_linear
from saccade.parts.fast_linear import FastLinear
from saccade.parts.heads import LinearHead
from saccade.parts.token_costs import TokenCost
from saccade.tasks.losses import teacher_forced_hidden
from saccade.tasks.translation import Translation
from saccade.training.device_loss import DeviceLoss

pytestmark = pytest.mark.usefixtures("without_shape_checks")
# bfloat16 has 8 significant bits: a rounding error is up to 0.4 %. Deep in these models, it is magnified.
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 0.01, 0.15


def loss_and_gradient(model: Model, precision: Precision) -> tuple[float, Tensor]:
    """The loss, and the gradients of all weights in one vector."""
    model.train().zero_grad()
    task = Translation(has_encoder=model.encoder is not None)
    loss = DeviceLoss(task, CPU, precision).loss(model, small_corpus(model).batch([0, 1, 2, 3]))
    loss.total.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert all(gradient.dtype is torch.float32 for gradient in gradients)
    return float(loss.total.detach()), torch.cat([gradient.flatten() for gradient in gradients])


def check_mixed_precision(model: Model) -> None:
    loss, gradient = loss_and_gradient(model, "float32")
    mixed_loss, mixed_gradient = loss_and_gradient(model, "bfloat16")
    assert not torch.equal(mixed_gradient, gradient), "nothing was computed in bfloat16"
    if samples_attention(model):
        return  # a rounding error may change what is sampled
    assert mixed_loss == pytest.approx(loss, rel=LOSS_TOLERANCE)
    assert relative_error(mixed_gradient, gradient) < GRADIENT_TOLERANCE


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


@every_variant
def test_gradients_in_bfloat16_are_those_of_float32_up_to_rounding(variant: Variant) -> None:
    check_mixed_precision(perturbed(variant.fresh(), by=0.1))


def test_planted_defect_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear layer that halves the gradient of its input in mixed precision."""

    def defective(self: FastLinear, x: Tensor) -> Tensor:
        return fast_linear.linear((x + x.detach()) / 2 if is_mixed(x) else x, self.weight, self.bias)

    monkeypatch.setattr(FastLinear, "forward", defective)
    with pytest.raises(AssertionError):
        check_mixed_precision(perturbed(DEFAULT.fresh(), by=0.1))


@pytest.mark.parametrize("label", ["default", "coverage", "decoder.block.self.normalizer=sparsemax"])
def test_attention_weights_stay_float32(label: str) -> None:
    model = perturbed(named(label).fresh(), by=0.1)
    batch = small_corpus(model).batch([0, 1])
    with torch.no_grad(), capture(model) as maps, mixed_precision("bfloat16", CPU):
        teacher_forced_hidden(model, batch)
    assert maps
    for weights in maps.values():
        assert weights.dtype is torch.float32
        totals = weights.sum(-1)
        torch.testing.assert_close(totals, totals.round(), rtol=0, atol=1e-5)  # 1, or 0 where everything is masked


@pytest.mark.parametrize("cost", [TokenCost(), TokenCost(smoothing=0.1), TokenCost(smoothing=0.1, r_drop=2.0)])
def test_head_multiplies_in_bfloat16_and_sums_in_float32(cost: TokenCost) -> None:
    torch.manual_seed(0)
    head = LinearHead(vocabulary=700, dim=32)
    hidden = torch.randn(600, 32, requires_grad=True)
    target = torch.randint(700, (600,))
    results = {}
    for precision in ("float32", "bfloat16"):
        head.zero_grad()
        hidden.grad = None
        with mixed_precision(precision, CPU):
            total, rows = head.loss(hidden, target, cost)
        assert total.dtype is rows.dtype is torch.float32
        (3 * total).backward()
        gradients = [hidden.grad, head.out.weight.grad, head.out.bias.grad]
        results[precision] = [gradient.clone() for gradient in gradients if gradient is not None], total.detach()
    assert float(results["bfloat16"][1]) == pytest.approx(float(results["float32"][1]), rel=1e-3)
    for mixed, full in zip(results["bfloat16"][0], results["float32"][0], strict=True):
        assert 1e-5 < relative_error(mixed, full) < 0.01


def test_unlikely_target_has_a_finite_cost_in_bfloat16() -> None:
    head = LinearHead(vocabulary=5, dim=4, bias=False)
    with torch.no_grad():
        head.out.weight.copy_(torch.eye(5, 4) * 400)
    with mixed_precision("bfloat16", CPU):
        _, rows = head.loss(torch.eye(1, 4), torch.tensor([1]))
    assert float(rows) == pytest.approx(400, rel=0.01)
