"""Every part works alone and keeps the contract of its slot."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from contracts import checks
from contracts.checks import shaken
from contracts.variants import B, D, T, V, Variant, every_choice, filled, named, options, small
from saccade.config import build
from saccade.decode.search import SEARCHES
from saccade.errors import BuildError
from saccade.optim.optimizers import OPTIMIZERS
from saccade.optim.schedules import SCHEDULES
from saccade.parts import (
    CELLS,
    CONNECTIONS,
    CONTEXTS,
    EMBEDDINGS,
    FEED_FORWARDS,
    HEADS,
    MIXERS,
    NORMALIZERS,
    NORMS,
    POOLS,
    POSITIONS,
    READOUTS,
    SCORES,
    Attentional,
    Deep,
    Dropout,
    EveryStep,
    Last,
    LayerNorm,
    Max,
    Mean,
    PlainReadout,
    SeriesEmbedding,
    Softmax,
    TokenEmbedding,
    Unprojected,
)
from saccade.places import Memory, Places


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
    checks.check_score(made(SCORES, tree, heads=2, width=11), Softmax())


@every(NORMALIZERS)
def test_a_pick_gives_weights_that_sum_to_one(tree: Any) -> None:
    checks.check_pick(made(NORMALIZERS, tree))


@pytest.mark.parametrize("kind", [kind for kind, normalizer in NORMALIZERS.items() if hasattr(normalizer, "settle")])
@pytest.mark.parametrize(
    "chosen", [{}, {"reward": 0.3, "entropy": 0.2, "baseline_decay": 0.5}, {"reward": 0.0, "baseline_decay": 0.0}]
)
def test_a_wager_is_settled_by_what_followed(kind: str, chosen: dict[str, float]) -> None:
    checks.check_wagers(made(NORMALIZERS, {"kind": kind, **chosen}))


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
    assert isinstance(part.needs_final_norm, bool)
    checks.check_pointwise(lambda x: part(x, torch.tanh))


FRAMES = 3


@every(EMBEDDINGS)
def test_an_embedding_gives_vectors_and_places_and_can_be_turned(tree: Any) -> None:
    frames = tree["kind"] == "series"
    embedding = made(EMBEDDINGS, tree, dim=D, vocabulary=0 if frames else V, frames=FRAMES if frames else 0)
    dice = torch.Generator().manual_seed(0)
    ids, numbers = torch.randint(V, (B, T), generator=dice), torch.randn(B, T, FRAMES, generator=dice)
    checks.check_embedding(embedding, numbers if frames else ids, 0 if frames else V)


def test_a_series_sees_neighbours_and_no_padding() -> None:
    numbers = torch.randn(B, T, FRAMES, generator=torch.Generator().manual_seed(0))
    checks.check_embedding(made(EMBEDDINGS, {"kind": "series", "width": 3}, frames=FRAMES, dim=D), numbers, 0)


def test_a_series_is_a_sum_over_neighbours() -> None:
    """Frames of one number, three at a time, weights 1, 10, 100: the place before, this place, the place after."""
    series = SeriesEmbedding(frames=1, dim=1, width=3)
    with torch.no_grad():
        series.projection.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
        series.projection.bias.fill_(5.0)
    x, _ = series(torch.tensor([[[1.0], [2.0], [3.0]]]), None)
    assert x[0, :, 0].tolist() == [0 + 10 + 200 + 5, 1 + 20 + 300 + 5, 2 + 30 + 0 + 5]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: SeriesEmbedding(frames=3, dim=D, width=2), "odd"),
        (lambda: SeriesEmbedding(frames=0, dim=D), "tokens"),
        (lambda: TokenEmbedding(0, D), "series"),
    ],
)
def test_an_embedding_refuses_what_it_cannot_read(make: Any, reason: str) -> None:
    with pytest.raises(BuildError, match=reason):
        make()


# ── parts of recurrent models ─────────────────────────────────────────────────────────────────────


@every(CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_cell_is_the_same_in_steps_in_pieces_and_beside_padding(tree: Any, depth: int, bidirectional: bool) -> None:
    checks.check_cell(lambda **site: made(CELLS, tree, **site), depth, bidirectional)


@every(CELLS)
def test_a_cell_refuses_half_of_an_odd_width(tree: Any) -> None:
    with pytest.raises(BuildError, match="odd") as refused:
        made(CELLS, tree, inputs=5, dim=7, bidirectional=True)
    assert refused.value.key == ("slot", "bidirectional")


@every(POOLS)
@pytest.mark.parametrize("backwards", [0, D // 2])
def test_a_pool_is_blind_to_padding_and_nothing_gives_zeros(tree: Any, backwards: int) -> None:
    checks.check_pool(made(POOLS, tree, backward_width=backwards))


@pytest.mark.parametrize(
    ("pool", "wanted"),
    [
        (Mean(), [[(1 + 3) / 2, (8 + 4) / 2], [-5, -7]]),
        (Max(), [[3, 8], [-5, -7]]),
        (POOLS["first"](), [[1, 8], [-5, -7]]),
        (Last(), [[3, 4], [-5, -7]]),
        (Last(backward_width=1), [[3, 8], [-5, -7]]),  # the second column has read from right to left
    ],
    ids=["mean", "max", "first", "last", "last-of-both-ways"],
)
def test_pools_by_hand(pool: Any, wanted: list[list[float]]) -> None:
    checks.check_pool_values(pool, wanted)


@every(READOUTS)
def test_a_readout_treats_each_place_by_itself(tree: Any) -> None:
    checks.check_readout(lambda context: made(READOUTS, tree, dim=D, context=context))


def test_readouts_by_hand() -> None:
    """Weights 1 for the state, 10 for the context, 100 for the word, and a bias of one half."""
    state, context, word = (torch.tensor([[[x]]]) for x in (0.3, -0.02, 0.001))
    attentional, deep = Attentional(dim=1, context=1), Deep(dim=1, context=1)
    with torch.no_grad():
        attentional.out.weight.copy_(torch.tensor([[1.0, 10.0]]))
        deep.out.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
        attentional.out.bias.fill_(0.5)
        deep.out.bias.fill_(0.5)
    assert PlainReadout()(state, context, word).item() == pytest.approx(0.3)
    assert attentional(state, context, word).item() == pytest.approx(math.tanh(0.3 - 0.2 + 0.5))
    assert deep(state, context, word).item() == pytest.approx(math.tanh(0.3 - 0.2 + 0.1 + 0.5))


@every(CONTEXTS)
def test_a_context_tells_each_hypothesis_of_its_sentence(tree: Any) -> None:
    checks.check_context(made(CONTEXTS, tree, dim=D, causal=False, cross=True, dropout=0.0).eval())


def test_every_step_tells_the_summary_and_at_start_nothing() -> None:
    x, states = torch.zeros(2, 3, D), torch.zeros(1, 4, D)
    memory = Memory(states, Places.of(states, None), torch.arange(float(D))[None])
    for kind, wanted in (("every_step", memory.summary.expand(2, 3, D)), ("at_start", torch.zeros(2, 3, 0))):
        context = CONTEXTS[kind](dim=D) if kind == "every_step" else CONTEXTS[kind]()
        told, _ = context(x, Places.of(x, None), context.start(memory, 2))
        assert torch.equal(told, wanted)
    assert EveryStep(D).width == D


def test_a_bare_attention_refuses_to_charge_for_what_it_does_not_count() -> None:
    for options_, key in (
        ({"coverage_loss": 0.5}, "coverage_loss"),
        ({"coverage": True, "cross": False}, "coverage"),
    ):
        with pytest.raises(BuildError) as refused:
            Unprojected(D, **options_)
        assert refused.value.key == (key,)


class Whole(nn.Module):
    """A head and the table that a tied one borrows: all the weights it uses."""

    def __init__(self, tree: Any, words: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = TokenEmbedding(words, D)
        self.head = build(filled(HEADS, tree), "head", vocabulary=words, dim=D, tied_weight=self.embedding.tied_weight)


@every(HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 8, 37])  # less than a chunk, one, several and a rest
def test_a_head_costs_what_the_textbook_says(
    tree: Any, smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.parts.heads.LOGIT_CHUNK_ROWS", 8)
    whole = shaken(Whole(tree, V))
    checks.check_head_loss(whole, whole.head, rows, V, smoothing)


@every(HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [2, 8, 38])
def test_a_head_draws_two_answers_together(
    tree: Any, smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.parts.heads.LOGIT_CHUNK_ROWS", 8)
    whole = shaken(Whole(tree, V))
    checks.check_head_loss(whole, whole.head, rows, V, smoothing, r_drop=1.7)


@every(HEADS)
def test_a_head_never_holds_all_logits(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.parts.heads.LOGIT_CHUNK_ROWS", 8)
    checks.check_head_memory(Whole(tree, 211).head, 101, 211)


@every(HEADS)
def test_a_head_computes_no_gradients_where_none_are_wanted(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.parts.heads.LOGIT_CHUNK_ROWS", 8)
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
    with pytest.raises(BuildError, match="rate"):
        Dropout(rate)


@pytest.mark.parametrize("rate", [0.9981, 0.999])
def test_dropout_of_almost_everything_works_or_is_refused(rate: float) -> None:
    try:
        dropout = Dropout(rate)
    except BuildError:
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
    checks.check_optimizer(lambda model: build(filled(OPTIMIZERS, tree), "optimizer", model=model))


@every(OPTIMIZERS)
def test_an_optimizer_goes_on_where_it_was(tree: Any) -> None:
    checks.check_optimizer_goes_on(lambda model: build(filled(OPTIMIZERS, tree), "optimizer", model=model))


@every(OPTIMIZERS)
def test_weight_decay_shrinks_matrices_and_leaves_vectors_alone(tree: Any) -> None:
    if "weight_decay" not in options(OPTIMIZERS, tree["kind"]):
        pytest.skip("it knows no decay")
    layer = shaken(nn.Linear(5, 3))
    before = {name: weight.detach().clone() for name, weight in layer.named_parameters()}
    decaying = filled(OPTIMIZERS, tree | {"weight_decay": 0.5})
    optimizer = build(decaying, "optimizer", model=layer)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for weight in layer.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), 0.95 * before["weight"])
    torch.testing.assert_close(layer.bias.detach(), before["bias"])


SEARCHED = ["default", "recurrent-lstm-after-True", "coverage", "hard-additive", "no-attention-every-step"]


@every(SEARCHES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("variant", [named(label) for label in SEARCHED], ids=str)
def test_a_search_keeps_the_rules_and_scores_as_a_forced_pass_does(tree: Any, seed: int, variant: Variant) -> None:
    model = shaken(variant.fresh(seed), seed)
    checks.check_search(lambda: made(SEARCHES, tree), model)


def test_small_sizes_are_used_where_a_kind_has_them() -> None:
    assert small(MIXERS, "multi_head")["heads"] == 2
