"""Word alignment from attention: small examples with given weights, and models of all kinds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts.checks.common import perturbed
from saccade import api, attention_alignment
from saccade.attention_alignment import (
    AlignmentSettings,
    WordPairs,
    align_by_attention,
    candidates,
    cross_attention_maps,
    default_settings,
    rank_settings,
    with_heads,
)
from saccade.data.batches import Corpus
from saccade.data.codecs import Codecs
from saccade.data.links import GradedLinks
from saccade.data.tokenizers import WordKind
from saccade.errors import DataError, RunError
from saccade.models.assemble import Model, assemble
from saccade.recipe import recipe_of
from saccade.tasks import translation
from saccade.tasks.guides import GuidedHead
from saccade.tasks.translation import Translation
from saccade.training.progress import Silent

NAME = "decoder.layers.0.cross"
# "ab c" → "xy z": on each side two tokens, one token, the end symbol. One row of weights per decoder step.
AB_C_TO_XY_Z = WordPairs([[[5, 6], [7]]], [[[8, 9], [10]]])
WEIGHTS = torch.tensor(
    [
        # a    b    c   </s>
        [0.1, 0.1, 0.7, 0.1],  # input <s>, output x
        [0.3, 0.3, 0.4, 0.0],  # input x, output y: the two tokens of "ab" together outweigh "c"
        [0.2, 0.2, 0.3, 0.3],  # input y, output z
        [0.0, 0.1, 0.2, 0.7],  # input z, output </s>
    ]
)


def links(
    step: attention_alignment.Step, end: attention_alignment.End, weights: Tensor = WEIGHTS
) -> list[tuple[int, int]]:
    maps = {NAME: weights[None, None]}
    (pair_links,) = attention_alignment._links(AB_C_TO_XY_Z, [0], maps, AlignmentSettings(((NAME, 0),), step, end))
    return sorted(pair_links)


def test_input_step_takes_the_weights_where_the_word_is_the_input() -> None:
    # xy: .3+.3+.2+.2 for "ab" against .7 for "c"; z: .1 for "ab", .2 for "c", although the end symbol has more
    assert links("input", "ignore") == [(0, 0), (1, 1)]


def test_output_step_takes_the_weights_where_the_word_is_the_output() -> None:
    # xy: .2+.6 for "ab" against 1.1 for "c"; z: .4 against .3
    assert links("output", "ignore") == [(0, 1), (1, 0)]


def test_null_leaves_a_word_without_a_link_if_the_end_symbol_has_the_most_weight() -> None:
    assert links("input", "null") == [(0, 0)]


def test_heads_are_averaged() -> None:
    maps = {NAME: torch.stack([WEIGHTS, WEIGHTS.flip(1)])[None], "decoder.layers.1.cross": WEIGHTS[None, None]}
    two_heads = AlignmentSettings(((NAME, 1), ("decoder.layers.1.cross", 0)))
    (pair_links,) = attention_alignment._links(AB_C_TO_XY_Z, [0], maps, two_heads)
    mean = (WEIGHTS + WEIGHTS.flip(1)) / 2
    assert sorted(pair_links) == links("input", "ignore", mean)


def test_settings_round_trip_through_plain() -> None:
    settings = AlignmentSettings(((NAME, 0), (NAME, 3)), "output", "null")
    assert AlignmentSettings.of(settings.plain()) == settings


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        {},
        {"heads": [], "step": "input", "end": "null"},
        {"heads": [["x", -1]], "step": "input", "end": "null"},
        {"heads": [["x", "0"]], "step": "input", "end": "null"},
        {"heads": [["x", 0]], "step": "sideways", "end": "null"},
        {"heads": "x", "step": "input", "end": "null"},
    ],
)
def test_other_values_are_not_settings(stored: Any) -> None:
    with pytest.raises(ValueError, match=r"^not alignment settings: expected heads, step and end$"):
        AlignmentSettings.of(stored)


# ── real models ──

HEADS = {"heads": 2}
BLOCK = {"self": HEADS, "feed_forward": {"inner": 16}}
GRU = {"kind": "recurrent", "cell": "gru"}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"encoder": {"depth": 3}, "decoder": {"depth": 3}, "block": BLOCK | {"cross": HEADS}},
    "additive": {"encoder": GRU, "decoder": GRU | {"cross": {"kind": "unprojected", "score": "additive"}}},
    "coverage": {
        "encoder": GRU,
        "decoder": GRU | {"cross": {"kind": "unprojected", "score": "additive", "coverage": True}},
    },
    "to recurrent": {"encoder": {"depth": 1, "block": BLOCK}, "decoder": GRU | {"cross": {"kind": "unprojected"}}},
}
PAIRS = [("a b c", "b a"), ("", "b"), ("c", "a b c b a"), ("a  b", " c "), ("b", "")]
TOKENS = WordKind().learn(["a b c"])
CODECS = Codecs(TOKENS, TOKENS)


def model_of(sides: dict[str, Any]) -> Model:
    config = recipe_of({"model": {"dim": 16} | sides})
    return perturbed(assemble(config.model, TOKENS.input, TOKENS.size)).eval()


@pytest.mark.parametrize("name", MODELS)
def test_every_target_word_gets_a_link(name: str) -> None:
    model = model_of(MODELS[name])
    words = WordPairs.of(CODECS, PAIRS)
    settings = default_settings(model, Translation())
    for batch_tokens in (1, 4096):  # the links do not depend on the batch size
        links = dict(align_by_attention(model, words, settings, batch_tokens))
        assert [sorted({t for _, t in links[row]}) for row in range(5)] == [[0, 1], [], [0, 1, 2, 3, 4], [0], []]
        assert all(s < len(source.split()) for row, (source, _) in enumerate(PAIRS) for s, _ in links[row])
        assert links == dict(align_by_attention(model, words, settings, 4096))


def test_default_settings_use_the_second_to_last_layer() -> None:
    model = model_of(MODELS["transformer"])
    assert default_settings(model, Translation()).heads == (
        ("decoder.layers.1.cross", 0),
        ("decoder.layers.1.cross", 1),
    )
    assert default_settings(model_of(MODELS["additive"]), Translation()) == AlignmentSettings(
        (("decoder.cross", 0),), "output"
    )


def test_layers_and_heads_can_be_selected() -> None:
    model = model_of(MODELS["transformer"])
    base = default_settings(model, Translation())
    assert with_heads(model, base, [0, 2], [1]).heads == (("decoder.layers.0.cross", 1), ("decoder.layers.2.cross", 1))
    assert with_heads(model, base, [], [1]).heads == (("decoder.layers.1.cross", 1),)
    assert with_heads(model, base, [2], []).heads == (("decoder.layers.2.cross", 0), ("decoder.layers.2.cross", 1))
    with pytest.raises(RunError, match="--layer 3: the model has cross-attention layers 0 to 2"):
        with_heads(model, base, [3], [])
    with pytest.raises(RunError, match=r"--head 2: decoder.layers.1.cross has heads 0 to 1"):
        with_heads(model, base, [], [2])


def test_model_without_cross_attention_cannot_align() -> None:
    model = model_of({"encoder": GRU, "decoder": GRU | {"cross": "at_start"}})
    with pytest.raises(RunError, match="the model has no cross-attention"):
        default_settings(model, Translation())
    with pytest.raises(RunError, match="the model has no cross-attention"):
        next(cross_attention_maps(model, WordPairs.of(CODECS, PAIRS), 4096))


def test_ranking_finds_the_settings_that_produced_the_links() -> None:
    model = model_of(MODELS["transformer"])
    pairs = [("a b c a", "b c a b"), ("c a b", "a b c c"), ("b a", "c b a")] * 3
    words = WordPairs.of(CODECS, pairs)
    true_settings = AlignmentSettings((("decoder.layers.2.cross", 1),), "output")
    links = dict(align_by_attention(model, words, true_settings, 4096))
    ranked = rank_settings(model, words, [GradedLinks(links[row], links[row]) for row in range(len(pairs))], 4096)
    best = [settings for settings, scores in ranked if scores.aer == ranked[0][1].aer]
    assert ranked[0][1].aer == pytest.approx(0)
    assert true_settings in best
    assert len(ranked) == len(candidates({f"decoder.layers.{layer}.cross": 2 for layer in range(3)})) == 40


# ── guided alignment: a head is trained on given links ──

WORDS = "one two three four five six seven eight"
OTHERS = "un deux trois quatre cinq six sept huit"


def write_corpus(folder: Path, rows: int) -> None:
    """Random sentences, word-by-word translations in reverse order, and their links."""
    generator = torch.Generator().manual_seed(5)
    english, french = WORDS.split(), OTHERS.split()
    chosen = [
        torch.randint(8, (int(torch.randint(3, 7, (), generator=generator)),), generator=generator) for _ in range(rows)
    ]
    (folder / "en").write_text("".join(" ".join(english[i] for i in row) + "\n" for row in chosen), "utf-8")
    (folder / "fr").write_text("".join(" ".join(french[i] for i in row.flip(0)) + "\n" for row in chosen), "utf-8")
    lines = (" ".join(f"{len(row) - 1 - t}-{t}" for t in range(len(row))) for row in chosen)
    (folder / "links").write_text("".join(line + "\n" for line in lines), "utf-8")
    for side in ("en", "fr"):
        first_rows = (folder / side).read_text("utf-8").splitlines(keepends=True)[:20]
        (folder / f"dev.{side}").write_text("".join(first_rows), "utf-8")


def guided(folder: Path, guide: Any, updates: int) -> dict[str, Any]:
    text = {"kind": "pairs", "src": "en", "tgt": "fr"}
    dev = {"kind": "pairs", "src": "dev.en", "tgt": "dev.fr"}
    return {
        "data": {"folder": str(folder), "train": text | {"links": "links"}, "dev": dev, "tokenizer": "characters"},
        "task": {"kind": "translation", "guide": guide},
        "model": {"dim": 32} | MODELS["transformer"] | {"dropout": {"residual": 0.0, "embedding": 0.0}},
        "train": {
            "updates": updates,
            "batch_tokens": 1000,
            "schedule": {"kind": "linear", "rate": 0.005, "warmup": 20},
            "validate_every": updates,
            "log_every": 10,
        },
        "decode": {"search": "greedy"},
    }


ON_END, ON_BOTH_WORDS = [0, 0, 1], [0.5, 0.5, 0]


@pytest.mark.parametrize(
    ("confidence", "step", "target"),
    [
        (1.0, "output", [ON_END, ON_BOTH_WORDS]),
        (1.0, "input", [[0, 0, 0], ON_END]),
        (0.5, "output", [ON_END, [0.25, 0.25, 0.5]]),
    ],
)
def test_guide_loss_is_the_cross_entropy_with_the_links(
    confidence: float, step: Any, target: list[list[float]]
) -> None:
    """One target word is linked to both source words, one has no link. Missing weight belongs to the end symbol."""
    links = [np.array([[0, 1, confidence], [1, 1, confidence]])]  # output 1; output 0 has none
    batch = Corpus([[5, 6]], [[8, 9]], links=links).batch([0])
    weights = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.2, 0.2]]])
    cost = GuidedHead(head=1, weight=2.0, step=step).cost(torch.stack([torch.rand(1, 3, 3), weights], 1), batch)
    expected = -2.0 * (torch.tensor(target) * weights[0, :2].log()).sum(-1)
    assert cost[0, :2].tolist() == pytest.approx(expected.tolist())


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("step", ["input", "output"])
def test_guided_head_learns_the_links(step: str, tmp_path: Path) -> None:
    write_corpus(tmp_path, 1000)
    guide = {"kind": "head", "attention": "decoder.layers.2.cross", "head": 1, "step": step, "weight": 1.0}
    run = api.train(guided(tmp_path, guide, 150), tmp_path / "run", report=Silent())
    assert run.alignment_settings == AlignmentSettings((("decoder.layers.2.cross", 1),), step, "null")  # type: ignore[arg-type]
    pairs = [("two five eight one", "un huit cinq deux"), ("six one two", "deux un six")]
    assert run.align(pairs) == [frozenset({(3, 0), (2, 1), (1, 2), (0, 3)}), frozenset({(2, 0), (1, 1), (0, 2)})]
    logged = run.folder.metrics.read_text("utf-8")
    assert '"guide"' in logged, "the loss is not logged"
    other_head = run.align(pairs, AlignmentSettings((("decoder.layers.0.cross", 0),)))
    assert other_head != run.align(pairs), "an unguided head gives the same links as the guided one"


@pytest.fixture
def guide_error(tmp_path: Path) -> Callable[[Any], str]:
    def message(guide: Any) -> str:
        write_corpus(tmp_path, 5)
        with pytest.raises(Exception, match=r"guide") as caught:
            recipe_of(guided(tmp_path, guide, 1))
        return str(caught.value)

    return message


def test_guide_of_an_unknown_attention_or_head_is_an_error(guide_error: Callable[[Any], str]) -> None:
    assert "task.guide.attention: there is no cross-attention 'decoder.layers.7.cross'; did you mean" in guide_error(
        {"kind": "head", "attention": "decoder.layers.7.cross"}
    )
    assert "task.guide.head: decoder.layers.1.cross has heads 0 to 1, got 2" in guide_error({"kind": "head", "head": 2})


class RecordingReporter(Silent):
    """Keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, text: str) -> None:
        self.messages.append(text)


@pytest.mark.slow
def test_missing_links_are_computed_before_guided_training(tmp_path: Path) -> None:
    write_corpus(tmp_path, 200)
    recipe = guided(tmp_path, {"kind": "head", "weight": 2.0}, 60)
    recipe["data"]["train"].pop("links")
    report = RecordingReporter()
    api.train(recipe, tmp_path / "run", report=report)
    assert "aligning the training tokens, forward: HMM, iteration 5 of 5" in report.messages
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    costs = [line["auxiliary_losses"]["guide"] for line in lines if "auxiliary_losses" in line]
    assert costs[-1] < costs[0] / 2


def test_too_much_text_to_align_before_training_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path, 20)
    recipe = guided(tmp_path, {"kind": "head"}, 2)
    recipe["data"]["train"].pop("links")
    monkeypatch.setattr(translation, "MAX_ALIGNMENT_CELLS", 10)
    with pytest.raises(DataError, match=r"task.guide: aligning .* would take .* set data.train.links = FILE"):
        api.train(recipe, tmp_path / "run", report=Silent())
