"""What encoder, decoder and head share: embedding tables and the summary; and what a model with one side needs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.variants import DEFAULT, D
from saccade.errors import ConfigError
from saccade.inputs import Frames, Input, Tokens
from saccade.models.assemble import DECODERS, ENCODERS, Model, ModelConfig, assemble
from saccade.models.recurrent import RecurrentDecoder
from saccade.parts import SeriesEmbedding, TiedHead
from saccade.places import Memory
from saccade.recipe import recipe_of

SIZES = ("tiny", "small", "base", "big")


class WithoutOptions(nn.Module):
    """An encoder that has no option `embedding`, such as a CNN."""

    longest = None
    keeps_layers = False

    def __init__(self, dim: int, input: Input, summary: bool = False):  # noqa: A002 - the name of the wiring
        super().__init__()
        self.embedding = SeriesEmbedding(input, dim)

    def encode(self, values: Tensor, keep: Tensor | None) -> Memory:
        states, places = self.embedding(values, keep)
        return Memory(states, places, None, (states,))


def config(**changes: Any) -> ModelConfig:
    return DEFAULT.changed(**changes).config


def tables(model: Model) -> list[int]:
    assert model.encoder
    assert model.decoder
    return [id(side.embedding) for side in (model.encoder, model.decoder)]


def test_embeddings_are_shared_where_both_sides_have_equal_ones() -> None:
    first, second = tables(DEFAULT.fresh())
    assert first == second
    first, second = tables(DEFAULT.changed(shared_embeddings=False).fresh())
    assert first != second
    unscaled = DEFAULT.tree["decoder"] | {"embedding": {"scaled": False}}
    first, second = tables(DEFAULT.changed(decoder=unscaled).fresh())
    assert first != second
    series = DEFAULT.tree["encoder"] | {"embedding": "series"}
    first, second = tables(assemble(config(encoder=series), Frames(3), 7))
    assert first != second


def test_encoder_without_the_option_embedding_fits_a_text_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "cnn", WithoutOptions)
    model = assemble(config(encoder="cnn"), Frames(3), 7)
    assert model.decoder
    memory = model.encode(torch.randn(2, 5, 3), None)
    hidden, _ = model.decoder.step(torch.tensor([[1], [2]]), model.decoder.start(memory, 2))
    assert model.head.log_probs(hidden).shape == (2, 1, 7)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(
    ("changes", "reads"), [({"encoder": "none"}, "decoder"), ({"decoder": "none", "head": "linear"}, "summary")]
)
def test_shared_embeddings_of_one_side_has_no_effect(changes: dict[str, Any], reads: Any, value: bool) -> None:
    with pytest.raises(ConfigError, match=r"^model\.shared_embeddings: has no effect, because .*; leave it out, or"):
        assemble(config(**changes, shared_embeddings=value), Tokens(7), 7, reads)
    assemble(config(**changes), Tokens(7), 7, reads)


@pytest.mark.parametrize("preset", [f"transformer-{size}" for size in SIZES])
def test_transformer_preset_becomes_decoder_only(preset: str) -> None:
    model = recipe_of({"extends": preset, "model": {"encoder": "none"}}).model
    assert model.encoder.kind == "none"


def test_tied_head_uses_the_embeddings_of_the_side_that_it_reads() -> None:
    model = assemble(config(decoder="none"), Tokens(7), 7, "encoder")
    assert isinstance(model.head, TiedHead)
    assert model.encoder
    ids = torch.tensor([[1, 2, 3]])
    states = model.encode(ids, None).states
    expected = (states @ model.encoder.embedding.table.weight.T).log_softmax(-1)  # type: ignore[attr-defined]
    torch.testing.assert_close(model.head.log_probs(states), expected)


@pytest.mark.parametrize(
    ("encoder", "source", "target", "has_labels"),
    [
        (DEFAULT.tree["encoder"], Tokens(7), 7, True),
        (DEFAULT.tree["encoder"], Tokens(7), 8, False),
        (DEFAULT.tree["encoder"] | {"embedding": "series"}, Frames(7), 7, False),
    ],
    ids=["labels", "another vocabulary", "series"],
)
def test_tied_head_without_embeddings_of_what_it_predicts_is_refused(
    encoder: dict[str, Any], source: Input, target: int, has_labels: bool
) -> None:
    with pytest.raises(ConfigError, match=r'^model\.head: "tied" needs an embedding .*; use "linear"$'):
        assemble(config(encoder=encoder, decoder="none"), source, target, "encoder", has_labels)


def recurrent_by_a_function(dim: int, input: Input, reads_summary: bool) -> RecurrentDecoder:  # noqa: A002
    return RecurrentDecoder(dim, input, reads_summary)


def test_decoder_made_by_a_function_can_read_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DECODERS, "function", recurrent_by_a_function)
    model = assemble(config(decoder="function"), Tokens(7), 7)
    assert model.decoder
    memory = model.encode(torch.tensor([[1, 2, 3]]), None)
    assert memory.summary is not None
    assert memory.summary.shape == (1, D)
    model.decoder.step(torch.tensor([[1]]), model.decoder.start(memory, 1))


@pytest.mark.parametrize("context", ["at_start", "every_step"])
def test_attending_after_the_cell_needs_attention(context: str) -> None:
    decoder = {"kind": "recurrent", "cross": context, "attend": "after"}
    with pytest.raises(ConfigError, match=r"^model\.decoder\.attend: has no effect, because .*; leave it out$"):
        DEFAULT.changed(decoder=decoder).fresh()
