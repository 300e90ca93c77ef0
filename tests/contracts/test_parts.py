"""Every part satisfies the contract of its slot."""

import math
from typing import Any

import pytest
import torch

from contracts.checks.cells import check_cell
from contracts.checks.contexts import check_context
from contracts.checks.embeddings import check_embedding
from contracts.checks.mixers import check_mixer
from contracts.checks.normalizers import check_normalizer, check_policy_loss
from contracts.checks.pointwise import check_feed_forward, check_pointwise
from contracts.checks.pools import check_pool, check_pool_values
from contracts.checks.positions import check_position
from contracts.checks.readouts import check_readout
from contracts.checks.scores import check_score
from contracts.choices import build_choice, every
from contracts.variants import B, D, T, V, small
from saccade.errors import BuildError
from saccade.inputs import Frames, Tokens
from saccade.parts import (
    CELLS,
    CONNECTIONS,
    CONTEXTS,
    EMBEDDINGS,
    FEED_FORWARDS,
    MIXERS,
    NORMALIZERS,
    NORMS,
    POOLS,
    POSITIONS,
    READOUTS,
    SCORES,
    Attentional,
    Deep,
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


@every(MIXERS)
def test_mixer_attends_to_itself_or_memory_and_gives_zeros_for_padding(tree: Any) -> None:
    check_mixer(lambda causal: build_choice(MIXERS, tree, dim=D, causal=causal, dropout=0.0))


@every(SCORES)
def test_score_joins_prepared_queries_and_keys(tree: Any) -> None:
    check_score(build_choice(SCORES, tree, heads=2, width=11), Softmax())


@every(NORMALIZERS)
def test_normalizer_gives_weights_that_sum_to_one(tree: Any) -> None:
    check_normalizer(build_choice(NORMALIZERS, tree))


SAMPLING = [kind for kind, normalizer in NORMALIZERS.items() if hasattr(normalizer, "policy_loss")]


def test_only_hard_attention_has_a_policy_loss() -> None:
    assert SAMPLING == ["hard"]


@pytest.mark.parametrize("kind", SAMPLING)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"policy_weight": 0.3, "entropy_weight": 0.2, "baseline_decay": 0.5},
        {"policy_weight": 0.0, "baseline_decay": 0.0},
    ],
    ids=["default", "other", "zero"],
)
def test_policy_loss_is_reinforce_with_baseline(kind: str, options: dict[str, float]) -> None:
    check_policy_loss(build_choice(NORMALIZERS, {"kind": kind, **options}))


@every(POSITIONS)
def test_position_encoding_is_the_same_in_chunks_and_with_padding(tree: Any) -> None:
    check_position(lambda causal: build_choice(POSITIONS, tree, dim=D, causal=causal))


@every(NORMS)
def test_norm_computes_each_position_separately(tree: Any) -> None:
    check_pointwise(build_choice(NORMS, tree, dim=D).eval())


@every(FEED_FORWARDS)
def test_feed_forward_computes_each_position_separately_and_ignores_padding(tree: Any) -> None:
    check_feed_forward(build_choice(FEED_FORWARDS, tree, dim=D, dropout=0.0))


@every(CONNECTIONS)
def test_connection_computes_each_position_separately(tree: Any) -> None:
    part = build_choice(CONNECTIONS, tree, dim=D, norm=LayerNorm, dropout=0.0).eval()
    assert isinstance(part.needs_final_norm, bool)
    check_pointwise(lambda x: part(x, torch.tanh))


# ── embeddings ────────────────────────────────────────────────────────────────────────────────────

FRAME_WIDTH = 3


@every(EMBEDDINGS)
def test_embedding_gives_vectors_places_and_tied_weight(tree: Any) -> None:
    series = tree["kind"] == "series"
    embedding = build_choice(EMBEDDINGS, tree, dim=D, input=Frames(FRAME_WIDTH) if series else Tokens(V))
    generator = torch.Generator().manual_seed(0)
    ids, frames = torch.randint(V, (B, T), generator=generator), torch.randn(B, T, FRAME_WIDTH, generator=generator)
    check_embedding(embedding, frames if series else ids, 0 if series else V)


def test_series_embedding_reads_neighbors_without_padding() -> None:
    frames = torch.randn(B, T, FRAME_WIDTH, generator=torch.Generator().manual_seed(0))
    embedding = build_choice(EMBEDDINGS, {"kind": "series", "width": 3}, input=Frames(FRAME_WIDTH), dim=D)
    check_embedding(embedding, frames, 0)


def test_series_embedding_is_weighted_sum_of_neighbors() -> None:
    """Width 3 with the weights 1, 10 and 100 for the previous, the current and the next frame."""
    series = SeriesEmbedding(Frames(1), dim=1, width=3)
    with torch.no_grad():
        series.projection.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
        series.projection.bias.fill_(5.0)
    x, _ = series(torch.tensor([[[1.0], [2.0], [3.0]]]), None)
    assert x[0, :, 0].tolist() == [0 + 10 + 200 + 5, 1 + 20 + 300 + 5, 2 + 30 + 0 + 5]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: SeriesEmbedding(Frames(3), dim=D, width=2), "odd"),
        (lambda: SeriesEmbedding(Tokens(V), dim=D), "tokens"),
        (lambda: TokenEmbedding(Frames(3), D), "series"),
    ],
    ids=["even width", "series of tokens", "tokens of frames"],
)
def test_embedding_rejects_unsuitable_input(make: Any, reason: str) -> None:
    with pytest.raises(BuildError, match=reason):
        make()


# ── parts of recurrent models ─────────────────────────────────────────────────────────────────────


@every(CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_cell_gives_same_result_in_steps_in_pieces_and_with_padding(tree: Any, depth: int, bidirectional: bool) -> None:
    check_cell(lambda **wiring: build_choice(CELLS, tree, **wiring), depth, bidirectional)


@every(CELLS)
def test_bidirectional_cell_rejects_odd_width(tree: Any) -> None:
    with pytest.raises(BuildError, match=r"7 is odd; .* or model\.encoder\.bidirectional = false") as raised:
        build_choice(CELLS, tree, inputs=5, dim=7, bidirectional=True)
    assert raised.value.key == ("slot",)


@every(POOLS)
@pytest.mark.parametrize("backward_width", [0, D // 2])
def test_pool_ignores_padding_and_gives_zeros_for_only_padding(tree: Any, backward_width: int) -> None:
    check_pool(build_choice(POOLS, tree, backward_width=backward_width))


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (Mean(), [[(1 + 3) / 2, (8 + 4) / 2], [-5, -7]]),
        (Max(), [[3, 8], [-5, -7]]),
        (POOLS["first"](), [[1, 8], [-5, -7]]),
        (Last(), [[3, 4], [-5, -7]]),
        (Last(backward_width=1), [[3, 8], [-5, -7]]),  # the second column was computed from right to left
    ],
    ids=["mean", "max", "first", "last", "last-bidirectional"],
)
def test_pool_computes_expected_summary(pool: Any, expected: list[list[float]]) -> None:
    check_pool_values(pool, expected)


@every(READOUTS)
def test_readout_computes_each_position_separately(tree: Any) -> None:
    check_readout(lambda context: build_choice(READOUTS, tree, dim=D, context=context))


def test_readout_computes_expected_hidden_state() -> None:
    """The weights are 1 for the state, 10 for the context and 100 for the token; the bias is 0.5."""
    state, context, token = (torch.tensor([[[x]]]) for x in (0.3, -0.02, 0.001))
    attentional, deep = Attentional(dim=1, context=1), Deep(dim=1, context=1)
    with torch.no_grad():
        attentional.out.weight.copy_(torch.tensor([[1.0, 10.0]]))
        deep.out.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
        attentional.out.bias.fill_(0.5)
        deep.out.bias.fill_(0.5)
    assert PlainReadout()(state, context, token).item() == pytest.approx(0.3)
    assert attentional(state, context, token).item() == pytest.approx(math.tanh(0.3 - 0.2 + 0.5))
    assert deep(state, context, token).item() == pytest.approx(math.tanh(0.3 - 0.2 + 0.1 + 0.5))


@every(CONTEXTS)
def test_context_gives_each_hypothesis_its_sentence(tree: Any) -> None:
    check_context(build_choice(CONTEXTS, tree, dim=D, causal=False, cross=True, dropout=0.0).eval())


def test_every_step_context_is_summary_and_at_start_context_is_empty() -> None:
    x, states = torch.zeros(2, 3, D), torch.zeros(1, 4, D)
    memory = Memory(states, Places.of(states, None), torch.arange(float(D))[None])
    for kind, expected in (("every_step", memory.summary.expand(2, 3, D)), ("at_start", torch.zeros(2, 3, 0))):
        context = CONTEXTS[kind](dim=D) if kind == "every_step" else CONTEXTS[kind]()
        vectors, _ = context(x, Places.of(x, None), context.start(memory, 2))
        assert torch.equal(vectors, expected)
    assert EveryStep(D).width == D


@pytest.mark.parametrize(
    ("options", "key"),
    [({"coverage_loss": 0.5}, "coverage_loss"), ({"coverage": True, "cross": False}, "coverage")],
    ids=["loss without coverage", "coverage in self-attention"],
)
def test_unprojected_attention_rejects_unusable_coverage(options: dict[str, Any], key: str) -> None:
    with pytest.raises(BuildError) as raised:
        Unprojected(D, **options)
    assert raised.value.key == (key,)


def test_small_sizes_are_used_where_a_kind_has_them() -> None:
    assert small(MIXERS, "multi_head")["heads"] == 2
