"""Every part works alone and keeps the contract of its slot."""

from typing import Any

import pytest
import torch
from torch import nn

from contracts import checks
from contracts.checks import shaken
from contracts.variants import DEFAULT, D, V, every_choice, filled, options, small
from saccade.config import build
from saccade.decode.search import SEARCHES
from saccade.errors import Refusal
from saccade.optim.optimizers import OPTIMIZERS
from saccade.optim.schedules import SCHEDULES
from saccade.parts import (
    CONNECTIONS,
    EMBEDDINGS,
    FEED_FORWARDS,
    HEADS,
    MIXERS,
    NORMS,
    PICKS,
    POSITIONS,
    SCORES,
    Dropout,
    LayerNorm,
    Words,
)
from saccade.parts.picks import Soft


def every(table: Any) -> pytest.MarkDecorator:
    choices = list(every_choice(table))
    return pytest.mark.parametrize("tree", [tree for _, tree in choices], ids=[label for label, _ in choices])


def made(table: Any, tree: Any, **site: Any) -> Any:
    torch.manual_seed(0)
    part = build(filled(table, tree), "slot", **site)
    return shaken(part) if isinstance(part, nn.Module) else part


@every(MIXERS)
def test_a_mixer_looks_at_itself_or_a_memory_and_nothing_gives_zeros(tree: Any) -> None:
    checks.check_mixer(lambda causal: made(MIXERS, tree, dim=D, causal=causal, dropout=0.0))


@every(SCORES)
def test_a_score_joins_what_it_prepared(tree: Any) -> None:
    checks.check_score(made(SCORES, tree, heads=2, width=11), Soft())


@every(PICKS)
def test_a_pick_gives_weights_that_sum_to_one(tree: Any) -> None:
    checks.check_pick(made(PICKS, tree))


@every(POSITIONS)
def test_a_position_knows_where_it_starts(tree: Any) -> None:
    checks.check_position(made(POSITIONS, tree, dim=D))


@every(NORMS)
def test_a_norm_treats_each_place_by_itself(tree: Any) -> None:
    checks.check_pointwise(made(NORMS, tree, dim=D).eval())


@every(FEED_FORWARDS)
def test_a_feed_forward_treats_each_place_by_itself(tree: Any) -> None:
    part = made(FEED_FORWARDS, tree, dim=D, dropout=0.0).eval()
    checks.check_pointwise(lambda x: part(x, torch.ones(x.shape[:2], dtype=torch.bool)))


@every(CONNECTIONS)
def test_a_connection_treats_each_place_by_itself(tree: Any) -> None:
    part = made(CONNECTIONS, tree, dim=D, norm=LayerNorm, dropout=0.0).eval()
    assert isinstance(part.closes, bool)
    checks.check_pointwise(lambda x: part(x, torch.tanh))


@every(EMBEDDINGS)
def test_an_embedding_gives_vectors_and_places_and_can_be_turned(tree: Any) -> None:
    checks.check_embedding(made(EMBEDDINGS, tree, vocabulary=V, dim=D), V)


class Whole(nn.Module):
    """A head and the table that a tied one borrows: all the weights it uses."""

    def __init__(self, tree: Any, words: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = Words(words, D)
        self.head = build(filled(HEADS, tree), "head", vocabulary=words, dim=D, turned=self.embedding.turned)


@every(HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 8, 37])  # less than a chunk, one, several and a rest
def test_a_head_costs_what_the_textbook_says(
    tree: Any, smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.parts.heads.CHUNK", 8)
    whole = shaken(Whole(tree, V))
    checks.check_head_loss(whole, whole.head, rows, V, smoothing)


@every(HEADS)
def test_a_head_never_holds_all_logits(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.parts.heads.CHUNK", 8)
    checks.check_head_memory(Whole(tree, 211).head, 101, 211)


@every(HEADS)
def test_a_head_computes_no_gradients_where_none_are_wanted(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.parts.heads.CHUNK", 8)
    checks.check_head_without_gradients(Whole(tree, V).head, V, 8)


@every(HEADS)
def test_a_head_of_no_rows_costs_nothing(tree: Any) -> None:
    hidden = torch.zeros(0, D, requires_grad=True)
    total, each = Whole(tree, V).head.loss(hidden, torch.zeros(0, dtype=torch.long), 0.1)
    total.backward()
    assert total.item() == 0
    assert each.shape == (0,)


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.1, 0.3, 0.5, 0.9, 0.99])
def test_dropout_keeps_the_mean(rate: float) -> None:
    checks.check_dropout(Dropout, rate)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_dropout_refuses_what_is_not_a_rate(rate: float) -> None:
    with pytest.raises(Refusal, match="rate"):
        Dropout(rate)


@pytest.mark.parametrize("rate", [0.9981, 0.999])
def test_dropout_of_almost_everything_works_or_is_refused(rate: float) -> None:
    try:
        dropout = Dropout(rate)
    except Refusal:
        return
    assert dropout.train()(torch.ones(1000)).isfinite().all()


@every(SCHEDULES)
@pytest.mark.parametrize("warmup", [1, 10])
def test_a_schedule_rises_in_a_line_and_never_again(tree: Any, warmup: int) -> None:
    schedule = made(SCHEDULES, tree | {"rate": 0.003, "warmup": warmup}, updates=100)
    checks.check_schedule(schedule, 0.003, warmup, 100)


@every(SCHEDULES)
def test_a_schedule_ends_where_it_says(tree: Any) -> None:
    if "last" not in options(SCHEDULES, tree["kind"]):
        pytest.skip("it knows no end")
    schedule = made(SCHEDULES, tree | {"rate": 0.003, "warmup": 10, "last": 0.1}, updates=110)
    assert schedule(110) == schedule(10_000) == pytest.approx(0.0003)
    assert schedule(60) == pytest.approx(0.00165), "half way down in the middle"


@every(OPTIMIZERS)
def test_an_optimizer_goes_downhill(tree: Any) -> None:
    checks.check_optimizer(lambda parameters: build(filled(OPTIMIZERS, tree), "optimizer", parameters=parameters))


@every(OPTIMIZERS)
def test_weight_decay_shrinks_matrices_and_leaves_vectors_alone(tree: Any) -> None:
    if "weight_decay" not in options(OPTIMIZERS, tree["kind"]):
        pytest.skip("it knows no decay")
    layer = shaken(nn.Linear(5, 3))
    before = {name: weight.detach().clone() for name, weight in layer.named_parameters()}
    decaying = filled(OPTIMIZERS, tree | {"weight_decay": 0.5})
    optimizer = build(decaying, "optimizer", parameters=layer.parameters())
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for weight in layer.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), 0.95 * before["weight"])
    torch.testing.assert_close(layer.bias.detach(), before["bias"])


@every(SEARCHES)
@pytest.mark.parametrize("seed", range(3))
def test_a_search_keeps_the_rules_and_scores_as_a_forced_pass_does(tree: Any, seed: int) -> None:
    model = shaken(DEFAULT.fresh(seed), seed)
    checks.check_search(lambda: made(SEARCHES, tree), model)


def test_small_sizes_are_used_where_a_kind_has_them() -> None:
    assert small(MIXERS, "multi_head")["heads"] == 2
