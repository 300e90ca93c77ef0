"""Scores against hand-computed values with small integers, and their gradients by finite differences."""

import math
from collections.abc import Callable
from math import tanh
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.checks.common import perturbed
from saccade.parts import SCORES, Additive, Dot, Multiplicative, ReducedRank, ScaledDot

# one sentence, one head: two queries and three keys of width 2
Q = [[1, 2], [0, -1]]
K = [[3, 4], [5, -6], [0, 1]]
# the queries and keys of a second head
Q2 = [[2, 0], [1, 1]]
K2 = [[1, 1], [0, 2], [-3, 1]]


def heads(*heads: list[list[int]]) -> Tensor:
    """[1 H T K]"""
    return torch.tensor(heads, dtype=torch.float64)[None]


def with_weights(score: nn.Module, **weights: Any) -> Any:
    """The score in double precision, its weights set to these values."""
    score = score.double()
    with torch.no_grad():
        for name, value in weights.items():
            weight = score.get_parameter(name)
            weight.copy_(torch.tensor(value, dtype=torch.float64).view(weight.shape))
    return score


def scores(score: Any, q: Tensor, k: Tensor) -> Tensor:
    return score.join(score.query(q), score.key(k))


def assert_scores(actual: Tensor, *expected: Any) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64)[None], rtol=0, atol=1e-12)


DOT = [
    [1 * 3 + 2 * 4, 1 * 5 + 2 * -6, 1 * 0 + 2 * 1],
    [0 * 3 - 1 * 4, 0 * 5 - 1 * -6, 0 * 0 - 1 * 1],
]
DOT2 = [
    [2 * 1 + 0 * 1, 2 * 0 + 0 * 2, 2 * -3 + 0 * 1],
    [1 * 1 + 1 * 1, 1 * 0 + 1 * 2, 1 * -3 + 1 * 1],
]


def test_dot_matches_hand_computed_values() -> None:
    assert DOT == [[11, -7, 2], [-4, 6, -1]]
    assert_scores(scores(Dot(), heads(Q), heads(K)), DOT)
    assert_scores(scores(Dot(), heads(Q, Q2), heads(K, K2)), DOT, DOT2)


def test_scaled_dot_is_dot_divided_by_the_root_of_the_width() -> None:
    head1, head2 = ([[s / math.sqrt(2) for s in row] for row in head] for head in (DOT, DOT2))
    assert_scores(scores(ScaledDot(), heads(Q), heads(K)), head1)
    assert_scores(scores(ScaledDot(), heads(Q, Q2), heads(K, K2)), head1, head2)


def test_scaled_dot_has_variance_one_at_any_width() -> None:
    torch.manual_seed(0)
    for width in (3, 100):
        q, k = (torch.randn(1, 1, 500, width) for _ in range(2))
        assert scores(ScaledDot(), q, k).var().item() == pytest.approx(1, abs=0.15)
        assert scores(Dot(), q, k).var().item() == pytest.approx(width, rel=0.15)


# a key [a b] becomes [1a + 3b, 2a + 4b]: [3 4] → [15 22], [5 −6] → [−13 −14], [0 1] → [3 4]
MATRIX = [[1, 2], [3, 4]]
BILINEAR = [
    [1 * 15 + 2 * 22, 1 * -13 + 2 * -14, 1 * 3 + 2 * 4],
    [0 * 15 - 1 * 22, 0 * -13 - 1 * -14, 0 * 3 - 1 * 4],
]
# a key [a b] becomes [b, −a]: [1 1] → [1 −1], [0 2] → [2 0], [−3 1] → [1 3]
MATRIX2 = [[0, -1], [1, 0]]
BILINEAR2 = [
    [2 * 1 + 0 * -1, 2 * 2 + 0 * 0, 2 * 1 + 0 * 3],
    [1 * 1 + 1 * -1, 1 * 2 + 1 * 0, 1 * 1 + 1 * 3],
]


def test_multiplicative_matches_hand_computed_values() -> None:
    assert BILINEAR == [[59, -41, 11], [-22, 14, -4]]
    assert_scores(scores(with_weights(Multiplicative(1, 2), out=MATRIX), heads(Q), heads(K)), BILINEAR)
    two_heads = with_weights(Multiplicative(2, 2), out=[MATRIX, MATRIX2])
    assert_scores(scores(two_heads, heads(Q, Q2), heads(K, K2)), BILINEAR, BILINEAR2)


def test_multiplicative_with_the_identity_matrix_equals_dot() -> None:
    assert_scores(scores(with_weights(Multiplicative(1, 2), out=[[1, 0], [0, 1]]), heads(Q), heads(K)), DOT)


# a query [a b] becomes 1a + 2b: 5 and −2; a key becomes 3a − 1b: 5, 21 and −1
RANK_ONE = [[5 * 5, 5 * 21, 5 * -1], [-2 * 5, -2 * 21, -2 * -1]]
# a query becomes 1a + 0b: 2 and 1; a key becomes 1a + 1b: 2, 2 and −2
RANK_ONE2 = [[2 * 2, 2 * 2, 2 * -2], [1 * 2, 1 * 2, 1 * -2]]


def test_reduced_rank_matches_hand_computed_values() -> None:
    one_head = with_weights(ReducedRank(1, 2, rank=1), query_weight=[1, 2], key_weight=[3, -1])
    assert_scores(scores(one_head, heads(Q), heads(K)), RANK_ONE)
    two_heads = with_weights(ReducedRank(2, 2, rank=1), query_weight=[[1, 2], [1, 0]], key_weight=[[3, -1], [1, 1]])
    assert_scores(scores(two_heads, heads(Q, Q2), heads(K, K2)), RANK_ONE, RANK_ONE2)


def test_reduced_rank_equals_multiplicative_with_a_matrix_of_that_rank() -> None:
    torch.manual_seed(0)
    reduced = ReducedRank(1, 7, rank=3).double()
    matrix = reduced.query_weight[0] @ reduced.key_weight[0].T
    assert torch.linalg.matrix_rank(matrix) == 3
    q, k = (torch.randn(2, 1, n, 7, dtype=torch.float64) for n in (5, 4))
    torch.testing.assert_close(scores(reduced, q, k), q @ matrix @ k.transpose(-1, -2))
    full = with_weights(Multiplicative(1, 7), out=matrix.T.tolist())
    torch.testing.assert_close(scores(full, q, k), scores(reduced, q, k))


# a query [a b] becomes [a b], a key becomes [b a]; the two tanh have the weights 10 and 1
ADDED = [[10 * tanh(a + d) + tanh(b + c) for c, d in K] for a, b in Q]
# a query becomes [2a 0], a key becomes [0 b]; the two tanh have the weights 1 and −1
ADDED2 = [[tanh(2 * a) - tanh(d) for c, d in K2] for a, b in Q2]


def test_additive_matches_hand_computed_values() -> None:
    assert ADDED[0] == [10 * tanh(1 + 4) + tanh(2 + 3), 10 * tanh(1 - 6) + tanh(2 + 5), 10 * tanh(1 + 1) + tanh(2 + 0)]
    one_head = with_weights(Additive(1, 2), query_weight=[[1, 0], [0, 1]], key_weight=[[0, 1], [1, 0]], out=[10, 1])
    assert_scores(scores(one_head, heads(Q), heads(K)), ADDED)
    two_heads = with_weights(
        Additive(2, 2),
        query_weight=[[[1, 0], [0, 1]], [[2, 0], [0, 0]]],
        key_weight=[[[0, 1], [1, 0]], [[0, 0], [0, 1]]],
        out=[[10, 1], [1, -1]],
    )
    assert_scores(scores(two_heads, heads(Q, Q2), heads(K, K2)), ADDED, ADDED2)


def test_additive_has_inner_hidden_units() -> None:
    assert Additive(1, 7).prepared == 7
    wide = Additive(2, 7, inner=5)
    assert (wide.prepared, tuple(wide.query_weight.shape), tuple(wide.out.shape)) == (5, (2, 7, 5), (2, 5, 1))


# ── gradients ─────────────────────────────────────────────────────────────────────────────────────

SMALL: dict[str, Callable[[int], Any]] = {
    "scaled_dot": lambda heads: ScaledDot(3),
    "dot": lambda heads: Dot(3),
    "multiplicative": lambda heads: Multiplicative(heads, 3),
    "reduced_rank": lambda heads: ReducedRank(heads, 3, rank=2),
    "additive": lambda heads: Additive(heads, 3, inner=2),
}


def test_all_scores_are_covered() -> None:
    assert SMALL.keys() == SCORES.keys()


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", SMALL)
def test_gradients_of_queries_keys_and_weights_equal_finite_differences(kind: str, count: int) -> None:
    torch.manual_seed(0)
    score = perturbed(SMALL[kind](count)).double()
    q, k = (torch.randn(2, count, n, 3, dtype=torch.float64, requires_grad=True) for n in (3, 2))
    assert torch.autograd.gradcheck(lambda q, k, *weights: scores(score, q, k), (q, k, *score.parameters()))


@pytest.mark.parametrize("kind", SMALL)
def test_each_head_has_its_own_weights(kind: str) -> None:
    """A loss on the scores of one head has gradients only for the weights of that head."""
    torch.manual_seed(0)
    score = SMALL[kind](2)
    q, k = (torch.randn(2, 2, n, 3) for n in (3, 2))
    if list(score.parameters()):
        scores(score, q, k)[:, 1].sum().backward()
    for name, weight in score.named_parameters():
        assert not weight.grad[0].any(), f"{name} of head 0"
        assert weight.grad[1].any(), f"{name} of head 1"
