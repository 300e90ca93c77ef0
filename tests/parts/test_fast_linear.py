"""The faster product is the plain one: in values, in gradients, for any number of rows."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saccade.parts import fast_linear
from saccade.parts.fast_linear import FastLinear, linear, rounded

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """oneDNN multiplies everything, whatever the CPU. What it was given."""
    shapes: list[torch.Size] = []
    monkeypatch.setattr(fast_linear, "prefers_onednn", lambda: True)
    monkeypatch.setattr(fast_linear, "MIN_ONEDNN_MULTIPLICATIONS", 0)
    monkeypatch.setattr(fast_linear, "MIN_ONEDNN_ROWS", 0)
    plain = fast_linear.matmul

    def times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append(x.shape)
        return plain(x, weight, bias)

    monkeypatch.setattr(fast_linear, "matmul", times)
    return shapes


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    dice = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=dice).requires_grad_() for shape in shapes]


@needs_onednn
@pytest.mark.parametrize("shape", [(1, 7), (16, 7), (3, 5, 7), (2, 67, 7), (1000, 7)])
@pytest.mark.parametrize("biased", [True, False])
def test_values_and_gradients_are_those_of_torch(asked: list[torch.Size], shape: tuple[int, ...], biased: bool) -> None:
    x, weight, *bias = leaves(shape, (11, 7), *([(11,)] if biased else []))
    wanted, found = F.linear(x, weight, *bias), linear(x, weight, bias[0] if bias else None)
    torch.testing.assert_close(found, wanted)
    slope = torch.randn(found.shape)
    for ours, theirs in zip(
        torch.autograd.grad(found, [x, weight, *bias], slope),
        torch.autograd.grad(wanted, [x, weight, *bias], slope),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert len(asked) == 3, "one product forwards and two backwards, or it was not asked"


@needs_onednn
def test_what_needs_no_gradient_has_none(asked: list[torch.Size]) -> None:
    x, weight, bias = leaves((20, 5), (6, 5), (6,))
    y = linear(x.detach(), weight, bias)
    torch.autograd.grad(y.sum(), [weight, bias])
    assert len(asked) == 2, "the gradient of what is read is nobody's"
    with torch.no_grad():
        assert not linear(x, weight, bias).requires_grad


@needs_onednn
def test_a_gradient_that_lies_across_memory_is_taken_too(asked: list[torch.Size]) -> None:
    x, weight = leaves((16, 5), (6, 5))
    slope = torch.randn(6, 16).t()
    (found,) = torch.autograd.grad(linear(x, weight, None), [x], slope)
    torch.testing.assert_close(found, slope @ weight)


@needs_onednn
def test_rows_come_in_few_numbers(asked: list[torch.Size]) -> None:
    weight = torch.randn(4, 3)
    for rows in range(1, 1025):
        assert linear(torch.ones(rows, 3), weight, None).shape == (rows, 4)
    assert len({shape[0] for shape in asked}) <= 40


@given(st.integers(1, 10**7))
def test_little_is_added(rows: int) -> None:
    assert rows <= rounded(rows) <= max(rows + 15, rows * 9 / 8)
    assert rounded(rounded(rows)) == rounded(rows)


@needs_onednn
def test_other_numbers_are_multiplied_as_ever(asked: list[torch.Size]) -> None:
    layer = FastLinear(7, 11).double()
    x = torch.randn(5, 7, dtype=torch.float64)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    assert not asked
