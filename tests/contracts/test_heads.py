"""Every head computes the textbook loss in chunks; dropout keeps the mean."""

from typing import Any

import pytest
import torch
from torch import nn

from contracts.checks.common import perturbed
from contracts.checks.dropout import check_dropout
from contracts.checks.heads import check_head_loss, check_head_memory, check_head_without_gradients
from contracts.choices import every
from contracts.variants import D, V, filled
from saccade.config import build
from saccade.errors import BuildError, ConfigError
from saccade.inputs import Tokens
from saccade.parts import HEADS, Dropout, LinearHead, TokenEmbedding
from saccade.parts.token_costs import TokenCost
from saccade.recipe import recipe_of

CHUNK = 8


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.parts.heads.LOGIT_CHUNK_ROWS", CHUNK)


class HeadAndEmbedding(nn.Module):
    """A head and the embedding whose table a tied head uses."""

    def __init__(self, tree: Any, vocabulary: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = TokenEmbedding(Tokens(vocabulary), D)
        wiring = {"vocabulary": vocabulary, "dim": D, "tied_weight": self.embedding.tied_weight}
        self.head = build(filled(HEADS, tree), "head", **wiring)


@pytest.mark.usefixtures("small_chunks")
@every(HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 8, 37])  # less than a chunk, one chunk, several chunks and a remainder
def test_head_loss_equals_cross_entropy(tree: Any, smoothing: float, rows: int) -> None:
    owner = perturbed(HeadAndEmbedding(tree, V))
    check_head_loss(owner, owner.head, rows, V, TokenCost(smoothing))


@pytest.mark.usefixtures("small_chunks")
@every(HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [2, 8, 38])
def test_head_loss_with_r_drop_adds_symmetric_kl(tree: Any, smoothing: float, rows: int) -> None:
    owner = perturbed(HeadAndEmbedding(tree, V))
    check_head_loss(owner, owner.head, rows, V, TokenCost(smoothing, 1.7))


@pytest.mark.usefixtures("small_chunks")
@every(HEADS)
def test_head_never_holds_all_logits(tree: Any) -> None:
    check_head_memory(HeadAndEmbedding(tree, 211).head, 101, 211)


@pytest.mark.usefixtures("small_chunks")
@every(HEADS)
def test_head_loss_without_gradients_takes_one_product_per_chunk(tree: Any) -> None:
    check_head_without_gradients(HeadAndEmbedding(tree, V).head, V, CHUNK)


@every(HEADS)
def test_head_loss_of_no_rows_is_zero(tree: Any) -> None:
    hidden = torch.zeros(0, D, requires_grad=True)
    total, costs = HeadAndEmbedding(tree, V).head.loss(hidden, torch.zeros(0, dtype=torch.long), TokenCost(0.1))
    total.backward()
    assert total.item() == 0
    assert costs.shape == (0,)


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.1, 0.3, 0.5, 0.9, 0.99])
def test_dropout_keeps_the_mean(rate: float) -> None:
    check_dropout(Dropout, rate)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_dropout_rejects_rate_outside_of_0_to_1(rate: float) -> None:
    with pytest.raises(BuildError, match="rate"):
        Dropout(rate)


@pytest.mark.parametrize("rate", [0.9981, 0.999])
def test_dropout_rate_near_1_gives_finite_values_or_error(rate: float) -> None:
    try:
        dropout = Dropout(rate)
    except BuildError:
        return
    assert dropout.train()(torch.ones(1000)).isfinite().all()


class HeadWithoutSmoothing(LinearHead):
    """A head that computes R-Drop, but not label smoothing."""

    cost_terms = frozenset({"r_drop"})


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_term_of_the_cost_that_the_head_does_not_compute_is_refused(
    smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HEADS, "unsmoothed", HeadWithoutSmoothing)
    tree = {"extends": "demo", "task": {"kind": "translation", "smoothing": smoothing, "r_drop": 1.0}}
    changes = {"model": {"head": "unsmoothed"}}
    if smoothing:
        with pytest.raises(
            ConfigError, match=r'^task\.smoothing: the head "unsmoothed" cannot compute it; set it to 0'
        ):
            recipe_of(tree, changes)
    else:
        recipe_of(tree, changes)
