"""The linear layer on oneDNN equals F.linear in values and gradients, for any number of rows."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saccade.parts import fast_linear
from saccade.parts.fast_linear import FastLinear, linear, padded_count

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture
def onednn_calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Use oneDNN for every product, whatever the CPU. Collects the input shape of each call."""
    shapes: list[torch.Size] = []
    monkeypatch.setattr(fast_linear, "prefers_onednn", lambda: True)
    monkeypatch.setattr(fast_linear, "MIN_ONEDNN_MULTIPLICATIONS", 0)
    monkeypatch.setattr(fast_linear, "MIN_ONEDNN_ROWS", 0)
    original = fast_linear.linear_no_grad

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append(x.shape)
        return original(x, weight, bias)

    monkeypatch.setattr(fast_linear, "linear_no_grad", counted)
    return shapes


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


@needs_onednn
@pytest.mark.parametrize("shape", [(1, 7), (16, 7), (3, 5, 7), (2, 67, 7), (1000, 7)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_and_gradients_equal_torchs(
    onednn_calls: list[torch.Size], shape: tuple[int, ...], has_bias: bool
) -> None:
    x, weight, *bias = leaves(shape, (11, 7), *([(11,)] if has_bias else []))
    expected, actual = F.linear(x, weight, *bias), linear(x, weight, bias[0] if bias else None)
    torch.testing.assert_close(actual, expected)
    output_gradient = torch.randn(actual.shape)
    for ours, theirs in zip(
        torch.autograd.grad(actual, [x, weight, *bias], output_gradient),
        torch.autograd.grad(expected, [x, weight, *bias], output_gradient),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    products = len(onednn_calls)
    assert products == 3, f"{products} products, not one in the forward pass and two in the backward pass"


@needs_onednn
def test_unneeded_gradients_are_not_computed(onednn_calls: list[torch.Size]) -> None:
    x, weight, bias = leaves((20, 5), (6, 5), (6,))
    y = linear(x.detach(), weight, bias)
    torch.autograd.grad(y.sum(), [weight, bias])
    assert len(onednn_calls) == 2, "a product was computed for the input, which needs no gradient"
    with torch.no_grad():
        assert not linear(x, weight, bias).requires_grad


@needs_onednn
def test_output_gradient_may_be_non_contiguous(onednn_calls: list[torch.Size]) -> None:
    x, weight = leaves((16, 5), (6, 5))
    output_gradient = torch.randn(6, 16).t()
    (input_gradient,) = torch.autograd.grad(linear(x, weight, None), [x], output_gradient)
    torch.testing.assert_close(input_gradient, output_gradient @ weight)


@needs_onednn
def test_padding_limits_the_number_of_different_row_counts(onednn_calls: list[torch.Size]) -> None:
    weight = torch.randn(4, 3)
    for rows in range(1, 1025):
        assert linear(torch.ones(rows, 3), weight, None).shape == (rows, 4)
    assert len({shape[0] for shape in onednn_calls}) <= 40


@given(st.integers(1, 10**7))
def test_padding_adds_at_most_an_eighth_or_fifteen_rows(rows: int) -> None:
    assert rows <= padded_count(rows) <= max(rows + 15, rows * 9 / 8)
    assert padded_count(padded_count(rows)) == padded_count(rows)


@needs_onednn
def test_double_precision_does_not_use_onednn(onednn_calls: list[torch.Size]) -> None:
    layer = FastLinear(7, 11).double()
    x = torch.randn(5, 7, dtype=torch.float64)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    assert not onednn_calls
