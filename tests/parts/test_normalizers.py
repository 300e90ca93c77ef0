"""Normalizers against hand-computed values and a brute-force projection, and their gradients by finite differences."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.parts import Hard, Softmax, Sparsemax

few_examples = settings(max_examples=150, deadline=None)
some_scores = st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=6)


def row(scores: Sequence[float], keep: Sequence[bool] | None = None) -> tuple[Tensor, Tensor | None]:
    """One query, as [1 1 1 S]."""
    mask = None if keep is None else torch.tensor(keep)[None, None, None]
    return torch.tensor(scores, dtype=torch.float64)[None, None, None], mask


def sparsemax(scores: Sequence[float], keep: Sequence[bool] | None = None) -> list[float]:
    return Sparsemax()(*row(scores, keep))[0, 0, 0].tolist()


# ── sparsemax ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        # two keys, scores t and 0 (Martins & Astudillo 2016, §2.2): 1 above t = 1, else (t + 1) / 2
        ([1.5, 0.0], [1.0, 0.0]),
        ([0.5, 0.0], [(0.5 + 1) / 2, (1 - 0.5) / 2]),
        ([-0.5, 0.0], [(1 - 0.5) / 2, (0.5 + 1) / 2]),
        ([-2.0, 0.0], [0.0, 1.0]),
        # 1 + 2 · 0.8 > 1.8 and 1 + 3 · 0.1 ≤ 1.9: a support of two, threshold (1.8 − 1) / 2 = 0.4
        ([1.0, 0.8, 0.1], [0.6, 0.4, 0.0]),
        # 1 + 2 · 0.2 > 1.3 and 1 + 3 · 0.1 ≤ 1.4: a support of two, threshold (1.3 − 1) / 2 = 0.15
        ([0.1, 1.1, 0.2], [0.0, 0.95, 0.05]),
        # a support of four, threshold (4 − 1) / 4
        ([1.0, 1.0, 1.0, 1.0], [0.25] * 4),
        ([7.0], [1.0]),
    ],
)
def test_sparsemax_matches_hand_computed_values(scores: list[float], expected: list[float]) -> None:
    assert sparsemax(scores) == pytest.approx(expected, abs=1e-12)


def test_masked_keys_do_not_influence_sparsemax() -> None:
    assert sparsemax([9.0, 1.0, 0.8, 9.0, 0.1], [False, True, True, False, True]) == pytest.approx([0, 0.6, 0.4, 0, 0])
    assert sparsemax([-900.0, 1.0, 0.8], [False, True, True]) == pytest.approx([0, 0.6, 0.4])
    assert sparsemax([3.0, 2.0], [False, False]) == [0, 0]


def nearest_distribution(scores: Sequence[float]) -> list[float]:
    """The projection onto the simplex by brute force: the best of the nearest points with each possible support."""
    best: tuple[float, list[float]] = (float("inf"), [])
    for size in range(1, len(scores) + 1):
        for support in itertools.combinations(range(len(scores)), size):
            threshold = (sum(scores[i] for i in support) - 1) / size
            point = [scores[i] - threshold if i in support else 0.0 for i in range(len(scores))]
            if min(point) >= 0:
                best = min(best, (sum((p - s) ** 2 for p, s in zip(point, scores, strict=True)), point))
    return best[1]


@given(some_scores)
@few_examples
def test_sparsemax_is_the_nearest_distribution(scores: list[float]) -> None:
    assert sparsemax(scores) == pytest.approx(nearest_distribution(scores), abs=1e-9)


@given(some_scores, st.data())
@few_examples
def test_masked_sparsemax_is_the_nearest_distribution_over_the_visible_keys(
    scores: list[float], data: st.DataObject
) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)).filter(any))
    visible = nearest_distribution([s for s, k in zip(scores, keep, strict=True) if k])
    expected = [visible.pop(0) if k else 0.0 for k in keep]
    assert sparsemax(scores, keep) == pytest.approx(expected, abs=1e-9)


@given(some_scores)
@few_examples
def test_jacobian_of_sparsemax_matches_the_paper(scores: list[float]) -> None:
    """diag(s) − s sᵀ / |s|, where s is 1 on the support and 0 elsewhere (Martins & Astudillo 2016, §2.4)."""
    weights = torch.tensor(sparsemax(scores))
    support = (weights > 0).double()
    threshold = torch.tensor(scores)[weights > 0].sum().sub(1) / support.sum()
    assume((torch.tensor(scores) - threshold).abs().min() > 1e-6)  # not differentiable at the edge of the support
    expected = torch.diag(support) - torch.outer(support, support) / support.sum()
    jacobian = torch.autograd.functional.jacobian(lambda s: Sparsemax()(s, None), row(scores)[0])
    torch.testing.assert_close(jacobian.view(len(scores), -1), expected, atol=1e-9, rtol=0)


def test_sparsemax_has_a_one_sided_derivative_at_the_edge_of_its_support() -> None:
    """Scores 1 and 0 give weights 1 and 0. On either side, one weight gains what the other loses."""
    scores = row([1.0, 0.0])[0]
    jacobian = torch.autograd.functional.jacobian(lambda s: Sparsemax()(s, None), scores).view(2, 2)
    torch.testing.assert_close(jacobian.sum(0), torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize("offset", [1e4, 1e5, 1e6])
def test_sparsemax_of_large_scores_sums_to_one(offset: float) -> None:
    scores = torch.randn(1, 1, 8, 50, generator=torch.Generator().manual_seed(0)) + offset
    sums = Sparsemax()(scores, None).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-4, rtol=0)


# ── softmax ──────────────────────────────────────────────────────────────────────────────────────


def test_softmax_matches_hand_computed_values() -> None:
    """Odds of 1 : 2 : 5."""
    scores = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64).log()[None, None, None]
    assert Softmax()(scores, None)[0, 0, 0].tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    keep = torch.tensor([True, True, False])[None, None, None]
    assert Softmax()(scores, keep)[0, 0, 0].tolist() == pytest.approx([1 / 3, 2 / 3, 0])
    assert Softmax()(scores, ~keep & False)[0, 0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("normalizer", [Softmax(), Sparsemax()], ids=["softmax", "sparsemax"])
def test_gradients_of_scores_equal_finite_differences(normalizer: Softmax | Sparsemax, masked: bool) -> None:
    scores = torch.randn(
        2, 2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    keep = torch.tensor([[True] * 4, [True, True, False, False]])[:, None, None] if masked else None
    assert torch.autograd.gradcheck(lambda s: normalizer(s, keep), scores)


# ── hard (its gradients: test_hard.py) ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("p", "uniform", "expected"),
    [
        ([0.25, 0.25, 0.5], 0.0, 0),
        ([0.25, 0.25, 0.5], 0.2499, 0),
        ([0.25, 0.25, 0.5], 0.25, 1),
        ([0.25, 0.25, 0.5], 0.4999, 1),
        ([0.25, 0.25, 0.5], 0.5, 2),
        ([0.25, 0.25, 0.5], 0.9999, 2),
        ([0.0, 0.5, 0.0, 0.5, 0.0], 0.0, 1),  # a key of probability 0 is never chosen
        ([0.0, 0.5, 0.0, 0.5, 0.0], 0.5, 3),
        ([0.0, 0.5, 0.0, 0.5, 0.0], 0.9999999, 3),
    ],
)
def test_sampling_inverts_the_cumulative_distribution(
    p: list[float], uniform: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.full(shape, uniform, dtype=torch.float64))
    assert Hard().sample(row(p)[0]).item() == expected


def test_keys_are_sampled_with_their_softmax_probability_and_heads_independently() -> None:
    torch.manual_seed(0)
    draws, scores = 40_000, torch.tensor([0.3, -1.0, 1.2, 0.0])
    weights = Hard().train()(scores.expand(1, 2, draws, 4), None)
    p = scores.softmax(0)
    error = 5 * (p * (1 - p) / draws).sqrt()
    for head in range(2):
        assert ((weights[0, head].mean(0) - p).abs() < error).all()
    agreement = (weights[0, 0] * weights[0, 1]).sum(-1).mean()
    assert agreement.item() == pytest.approx(float((p * p).sum()), abs=0.02)


def test_masked_keys_are_never_sampled() -> None:
    torch.manual_seed(0)
    keep = torch.tensor([False, True, False, True])[None, None, None]
    weights = Hard().train()(torch.zeros(1, 1, 5000, 4), keep)
    assert not weights[..., [0, 2]].any()
    assert weights.sum().item() == 5000


def test_evaluation_takes_the_most_likely_key() -> None:
    scores = torch.tensor([0.3, -1.0, 1.2, 0.0])[None, None, None]
    assert Hard().eval()(scores, None)[0, 0, 0].tolist() == [0, 0, 1, 0]
    keep = torch.tensor([True, True, False, True])[None, None, None]
    assert Hard().eval()(scores, keep)[0, 0, 0].tolist() == [1, 0, 0, 0]
