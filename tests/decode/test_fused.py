"""Fused models give the same results as their modules, and models with other parts are not fused."""

import copy
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from contracts.checks.common import perturbed
from saccade.config import Count, Positive, build, option_keys, python_layer, resolve
from saccade.data.batches import Padded
from saccade.data.tokenizers import WordKind
from saccade.decode import single
from saccade.decode.engine import DecodeConfig, in_order
from saccade.decode.fused import (
    FusedDecoder,
    FusedDecoderLayer,
    FusedEncoder,
    can_fuse_decoder,
    can_fuse_encoder,
)
from saccade.decode.loops import StepModel
from saccade.decode.single import SingleDecoder, can_decode_single
from saccade.decode.torch_engine import FusedModel, UnfusedDecoder, torch_engine
from saccade.decode.workers import limit_threads
from saccade.errors import SaccadeError
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, assemble, expand_block, sides_with_blocks
from saccade.models.blocks import Standard
from saccade.models.stacked import Stacked
from saccade.models.stacks import PlainStack
from saccade.notes import capture
from saccade.optim.optimizers import adamw
from saccade.parts import CONNECTIONS, EMBEDDINGS, FEED_FORWARDS, MIXERS, NORMALIZERS, NORMS, POSITIONS, SCORES
from saccade.parts.activations import Activation
from saccade.parts.fast_linear import FastLinear
from saccade.parts.feed_forwards import FusedFeedForward, PlainFeedForward
from saccade.parts.fused_forms import fused_form
from saccade.parts.mixers import MultiHead, attention
from saccade.parts.normalizers import Softmax
from saccade.parts.norms import FusedNorm, LayerNorm
from saccade.parts.scores import ScaledDot
from saccade.places import Memory, Places, select

V, D = 23, 12
PADDING_MASK = torch.arange(7) < torch.tensor([7, 3, 5])[:, None]


def model_of(changes: dict[str, Any]) -> Model:
    block = {"self": {"heads": 2}, "cross": {"heads": 3}, "feed_forward": {"inner": 17}} | changes.pop("block", {})
    tree = {"dim": D, "block": block, "encoder": {"depth": 1}, "decoder": {"depth": 3}} | changes
    layer = python_layer(tree)
    config = resolve(ModelConfig, expand_block(layer, sides_with_blocks(layer))).config
    torch.manual_seed(0)
    return perturbed(assemble(config, Tokens(V), V), by=0.2).eval()


FUSED_MODELS: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"block": {"connection": "post"}},
    "learned positions": {"decoder": {"depth": 2, "position": {"kind": "learned", "longest": 20}}},
    "dot score": {"block": {"self": {"heads": 2, "score": "dot"}, "cross": {"heads": 3, "score": "dot"}}},
    "explicit widths": {"block": {"self": {"heads": 2, "key_width": 5, "value_width": 5}, "cross": {"heads": 4}}},
    "gelu": {"block": {"feed_forward": {"inner": 9, "activation": "gelu"}}},
    "rms norm": {"block": {"norm": "rms"}},
    "post-norm rms norm": {"block": {"norm": "rms", "connection": "post"}},
    "gated": {"block": {"feed_forward": {"kind": "gated", "inner": 9}}},
    "gated gelu, rms norm": {
        "block": {"feed_forward": {"kind": "gated", "inner": 9, "activation": "gelu"}, "norm": "rms"}
    },
    "exceptions": {
        "decoder": {
            "depth": 3,
            "exceptions": [
                {"at": [1], "feed_forward": {"kind": "gated", "inner": 9}},
                {"at": [2], "norm": {"eps": 0.5}},
            ],
        },
        "encoder": {"depth": 2, "exceptions": [{"at": [1], "norm": "rms"}]},
    },
    "linear head": {"head": "linear"},
    "tied head with a bias": {"head": {"kind": "tied", "bias": True}},
}
# Part of each of these is computed by its modules, and none of them by NumPy.
PARTLY_FUSED_MODELS: dict[str, dict[str, Any]] = {
    "rotary": {"decoder": {"depth": 2, "position": "rotary"}, "encoder": {"depth": 1, "position": "rotary"}},
    "t5": {"decoder": {"depth": 2, "position": "t5"}, "encoder": {"depth": 1, "position": "t5"}},
    "no positions": {"decoder": {"depth": 2, "position": "none"}, "block": {"self": {"heads": 2, "score": "additive"}}},
    "sparse normalizer": {"block": {"cross": {"heads": 3, "normalizer": "sparsemax"}}},
    "additive score": {"block": {"self": {"heads": 2, "score": "additive"}}},
    "unprojected": {"block": {"self": "unprojected"}},
    "exception with another norm": {"decoder": {"depth": 3, "exceptions": [{"at": [1], "norm": "rms"}]}},
    "exception without a fused form": {
        "decoder": {"depth": 3, "exceptions": [{"at": [1], "self": "unprojected"}, {"at": [2], "connection": "post"}]}
    },
    "exception with other heads": {"decoder": {"depth": 3, "exceptions": [{"at": [1], "self": {"heads": 4}}]}},
    "different key and value widths": {"block": {"self": {"heads": 2, "key_width": 5, "value_width": 3}}},
}


def log_probs(steps: Any, model: Model, keep: Tensor | None, beam: int, sentences: int = 3) -> Tensor:
    """The log-probabilities of a search that reorders hypotheses and removes sentences until one is left."""
    generator = torch.Generator().manual_seed(1)
    memory = model.encoder.encode(torch.randint(4, V, (sentences, 7), generator=generator), keep)
    state = select(steps.start(memory, sentences), torch.arange(sentences).repeat_interleave(beam))
    results, rows = [], sentences
    for step in range(20):
        tokens = torch.randint(4, V, (rows * beam,), generator=generator)
        step_log_probs, state = steps.step(tokens, state)
        results.append(step_log_probs.flatten())
        order = torch.arange(rows)[:, None] * beam + torch.randint(0, beam, (rows, beam), generator=generator)
        state = select(state, order.flatten())
        if step in (3, 12) and rows > 1:
            stay = torch.tensor([0, 2][: rows - 1])
            state, rows = select(state, (stay[:, None] * beam + torch.arange(beam)).flatten(), stay), rows - 1
    return torch.cat(results)


ALL_MODELS = FUSED_MODELS | PARTLY_FUSED_MODELS


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_MODELS)
@pytest.mark.parametrize("keep", [None, PADDING_MASK], ids=["whole", "padded"])
@pytest.mark.parametrize("beam", [1, 4])
@torch.inference_mode()
def test_fused_decoder_equals_the_modules(name: str, keep: Tensor | None, beam: int) -> None:
    model = model_of(dict(ALL_MODELS[name]))
    assert can_fuse_decoder(model)
    modules, *others = (log_probs(steps, model, keep, beam) for steps in unfused_and_fused(model))
    for other in others:
        torch.testing.assert_close(other, modules, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ALL_MODELS)
@pytest.mark.parametrize(
    "keep", [None, PADDING_MASK, PADDING_MASK.flip(1)], ids=["whole", "padded", "padded on the left"]
)
@torch.inference_mode()
def test_fused_encoder_equals_the_modules(name: str, keep: Tensor | None) -> None:
    model = model_of(dict(ALL_MODELS[name]))
    assert can_fuse_encoder(model)
    model.encoder.keeps_layers = True
    values = torch.randint(4, V, (3, 7))
    fused, modules = FusedEncoder(model)(values, keep), model.encoder.encode(values, keep)
    kept = slice(None) if keep is None else keep
    torch.testing.assert_close(fused.states[kept], modules.states[kept], rtol=1e-5, atol=1e-5)
    assert len(fused.layers) == 1 + len(model.encoder.layers)
    for actual, expected in zip(fused.layers, modules.layers, strict=True):
        torch.testing.assert_close(actual[kept], expected[kept], rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_fused_encoder_makes_the_summary_of_the_modules() -> None:
    model = model_of({"encoder": {"depth": 1, "pool": "max"}, "decoder": {"kind": "recurrent"}})
    values = torch.randint(4, V, (3, 7))
    fused, modules = FusedEncoder(model)(values, PADDING_MASK), model.encoder.encode(values, PADDING_MASK)
    torch.testing.assert_close(fused.summary, modules.summary, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_MODELS)
@pytest.mark.parametrize("beam", [1, 4])
@torch.inference_mode()
def test_fused_decoder_equals_the_modules_for_a_single_sentence(name: str, beam: int) -> None:
    model = model_of(dict(ALL_MODELS[name]))
    modules, fused = (
        log_probs(steps, model, None, beam, sentences=1) for steps in (UnfusedDecoder(model), FusedDecoder(model))
    )
    torch.testing.assert_close(fused, modules, rtol=1e-5, atol=1e-5)


def single_log_probs(decoder: StepModel, memory: Memory, count: int = 60) -> Tensor:
    """The log-probabilities of a single hypothesis after each of `count` random tokens."""
    single, tokens = decoder.single(memory), torch.randint(4, V, (count,), generator=torch.Generator().manual_seed(1))
    return torch.stack([torch.from_numpy(single.log_probs(token)) for token in tokens.tolist()])


@pytest.mark.parametrize("length", [7, 90], ids=["short", "long"])
@pytest.mark.parametrize("name", FUSED_MODELS)
@torch.inference_mode()
def test_single_hypothesis_equals_the_modules(name: str, length: int) -> None:
    model = model_of(dict(FUSED_MODELS[name]))
    assert can_decode_single(FusedDecoder(model))
    memory = model.encoder.encode(torch.randint(4, V, (1, length)), None)
    modules, single = (
        single_log_probs(decoder, memory, 19) for decoder in (UnfusedDecoder(model), SingleDecoder(FusedDecoder(model)))
    )
    torch.testing.assert_close(single, modules, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_single_hypothesis_equals_the_modules_for_extreme_scores() -> None:
    """Attention to one position only, and scores whose exponentials overflow."""
    model = model_of({})
    for part in model.decoder.modules():
        if isinstance(part, MultiHead):
            part.query.weight.mul_(300.0)
    memory = model.encoder.encode(torch.randint(4, V, (1, 7)), None)
    modules, single = (
        single_log_probs(decoder, memory) for decoder in (UnfusedDecoder(model), SingleDecoder(FusedDecoder(model)))
    )
    torch.testing.assert_close(single, modules, rtol=1e-3, atol=1e-3)


@torch.inference_mode()
def test_single_hypothesis_with_a_padded_memory_equals_the_modules() -> None:
    model = model_of({})
    memory = model.encoder.encode(torch.randint(4, V, (1, 7)), PADDING_MASK[1:2])
    modules, single = (
        single_log_probs(decoder, memory) for decoder in (UnfusedDecoder(model), SingleDecoder(FusedDecoder(model)))
    )
    torch.testing.assert_close(single, modules, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_pre_norm_without_a_final_norm_is_not_decoded_with_numpy() -> None:
    fused = FusedDecoder(model_of({}))
    assert can_decode_single(fused)
    fused.final_norm = nn.Identity()
    assert not can_decode_single(fused)


@pytest.mark.parametrize("name", ["pre-norm", "post-norm"])
def test_outputs_without_scores_equal_those_with_scores(name: str) -> None:
    engine = engine_of(model_of(dict(FUSED_MODELS[name])))
    for line in ("a b c", "c", "q r s a b c d e f g"):
        scored, unscored = (
            next(in_order(engine.generate([line], resolve(DecodeConfig, [python_layer(tree)]).config)))[0]
            for tree in ({"search": "greedy"}, {"search": "greedy", "scores": False})
        )
        assert scored.ids == unscored.ids
        assert math.isfinite(scored.log_prob)
        assert math.isnan(unscored.log_prob)


def unfused_and_fused(model: Model) -> list[StepModel]:
    return [UnfusedDecoder(model), FusedDecoder(model)]


def test_numpy_decodes_neither_wide_models_nor_other_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = FusedDecoder(model_of({}))
    monkeypatch.setattr(single, "MAX_NUMPY_WEIGHTS", max(3 * D * D, 17 * D))
    assert can_decode_single(fused)
    monkeypatch.setattr(single, "MAX_NUMPY_WEIGHTS", single.MAX_NUMPY_WEIGHTS - 1)
    assert not can_decode_single(fused)
    monkeypatch.undo()
    assert not can_decode_single(FusedDecoder(model_of({}).double()))


@torch.inference_mode()
def test_first_step_equals_the_modules_for_a_long_source() -> None:
    model = model_of({})
    memory = model.encoder.encode(torch.randint(4, V, (1, 90)), None)
    modules, *others = (steps.step(torch.tensor([5]), steps.start(memory, 1))[0] for steps in unfused_and_fused(model))
    for other in others:
        torch.testing.assert_close(other, modules, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@torch.inference_mode()
def test_long_outputs_equal_the_modules() -> None:
    model = model_of({})
    memory = model.encoder.encode(torch.randint(4, V, (1, 7)), None)
    decoders = UnfusedDecoder(model), FusedDecoder(model), SingleDecoder(FusedDecoder(model))
    modules, *others = (single_log_probs(decoder, memory, 150) for decoder in decoders)
    for other in others:
        torch.testing.assert_close(other, modules, rtol=1e-4, atol=1e-4)


def test_recurrent_decoder_is_not_fused() -> None:
    assert not can_fuse_decoder(model_of({"decoder": {"kind": "recurrent"}}))


@pytest.mark.parametrize("name", PARTLY_FUSED_MODELS)
def test_model_with_other_parts_is_fused_in_part_but_not_decoded_with_numpy(name: str) -> None:
    model = model_of(dict(PARTLY_FUSED_MODELS[name]))
    assert can_fuse_decoder(model)
    fused = FusedDecoder(model)
    assert all(isinstance(layer, FusedDecoderLayer) and layer.feed_forward for layer in fused.layers)
    assert not can_decode_single(fused)


class ScaledNorm(LayerNorm):
    """A layer norm that is like the built-in one except for an option."""

    fused_options: ClassVar[set[str]] = {"eps"}

    def __init__(self, dim: int, *, eps: Positive = 1e-5, factor: Positive = 3.0):
        super().__init__(dim, eps=eps)
        self.factor = factor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        return self.factor * super().forward(input)

    def fused(self) -> FusedNorm:
        return FusedNorm(self.weight, self.bias, self.eps, centered=True)


class SubclassedNorm(LayerNorm):
    """A part that inherits a fused form which does not fit it."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        return 3.0 * super().forward(input)


class DoubledFeedForward(PlainFeedForward):
    """A feed-forward with an option that its fused form does not know of."""

    fused_options: ClassVar[set[str]] = {"inner", "activation"}

    def __init__(
        self, dim: int, dropout: float = 0.0, *, inner: Count = 5, activation: Activation = "relu", times: Count = 2
    ):
        super().__init__(dim, dropout, inner=inner, activation=activation)
        self.times = times

    def forward(self, x: Tensor, places: Places) -> Tensor:
        return self.times * super().forward(x, places)

    def fused(self) -> FusedFeedForward:
        return FusedFeedForward(self.up.weight, self.up.bias, self.activation, self.down.weight, self.down.bias)


class ScaledDotWithTemperature(ScaledDot):
    """A score with an option that the fused form of attention does not know."""

    def __init__(self, width: int = 0, *, temperature: Positive = 5.0):
        super().__init__(width)
        self.temperature = temperature

    def query(self, q: Tensor) -> Tensor:
        return super().query(q) / self.temperature


class SoftmaxWithTemperature(Softmax):
    """A normalizer with an option that the fused form of attention does not know."""

    is_softmax = False

    def __init__(self, *, temperature: Positive = 5.0):
        super().__init__()
        self.temperature = temperature

    def forward(self, scores: Tensor, keep: Tensor | None, queries: Places | None = None) -> Tensor:
        return super().forward(scores / self.temperature, keep, queries)


UNKNOWN: dict[str, tuple[dict[str, Any], str, type]] = {  # table, key in the block, class
    "an option that the fused form does not know": (NORMS, "norm", ScaledNorm),
    "a subclass": (NORMS, "norm", SubclassedNorm),
    "an option of a feed-forward": (FEED_FORWARDS, "feed_forward", DoubledFeedForward),
}


@pytest.mark.parametrize("name", UNKNOWN)
@torch.inference_mode()
def test_part_with_an_unknown_option_is_computed_by_its_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, key, part = UNKNOWN[name]
    assert fused_form(part(D), object) is None
    monkeypatch.setitem(table, "unknown", part)
    model = model_of({"block": {key: "unknown"}})
    assert can_fuse_decoder(model)
    assert_fused_equals_the_modules(model)


def assert_fused_equals_the_modules(model: Model) -> None:
    """For a batch and for a single hypothesis."""
    decoders = [FusedDecoder(model)] if can_fuse_decoder(model) else []
    modules, *others = (log_probs(steps, model, PADDING_MASK, 2) for steps in (UnfusedDecoder(model), *decoders))
    for other in others:
        torch.testing.assert_close(other, modules, rtol=1e-4, atol=1e-4)
    values = torch.randint(4, V, (1, 7))
    memory, engine = model.encode(values, None), FusedModel(model)
    torch.testing.assert_close(engine.encode(Padded(values, None)).states, memory.states, rtol=1e-4, atol=1e-4)
    single = single_log_probs(engine, memory, 5)
    torch.testing.assert_close(single, single_log_probs(UnfusedDecoder(model), memory, 5), rtol=1e-4, atol=1e-4)


OPTIONS_OF_ATTENTION: dict[str, tuple[dict[str, Any], str, str, type]] = {  # table, key, replaced class, new class
    "score": (SCORES, "score", "ScaledDot", ScaledDotWithTemperature),
    "normalizer": (NORMALIZERS, "normalizer", "Softmax", SoftmaxWithTemperature),
}


@pytest.mark.parametrize("name", OPTIONS_OF_ATTENTION)
@torch.inference_mode()
def test_attention_with_an_unknown_option_of_its_score_or_normalizer_is_computed_by_its_module(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, key, replaced, part = OPTIONS_OF_ATTENTION[name]
    monkeypatch.setattr(attention, replaced, part)  # as if the built-in class itself had the option
    monkeypatch.setitem(table, "unknown", part)
    mixer = {"heads": 2, key: "unknown"}
    assert_fused_equals_the_modules(model_of({"block": {"self": mixer, "cross": mixer}}))


class Lora(FastLinear):
    """A linear layer with a low-rank matrix added to its weight: W x + b + B A x."""

    def __init__(self, layer: nn.Linear):
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None)
        self.load_state_dict(layer.state_dict())
        self.a, self.b = nn.Parameter(torch.randn(2, self.in_features)), nn.Parameter(torch.randn(self.out_features, 2))

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        return super().forward(input) + input @ self.a.T @ self.b.T


class WrappingLora(nn.Module):
    """The same around any layer, with the weights under their old names."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.layer, self.lora, self.weight, self.bias = layer, Lora(layer), layer.weight, layer.bias
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def forward(self, x: Tensor) -> Tensor:
        return self.lora(x)


def weight_norm(layer: nn.Linear) -> nn.Module:
    return nn.utils.parametrizations.weight_norm(layer)


def with_hook(layer: nn.Linear) -> nn.Module:
    layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    return layer


CHANGED_LAYERS: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "LoRA": Lora,
    "LoRA around a layer": WrappingLora,
    "parametrized": weight_norm,
    "with a hook": with_hook,
}
PARTS_WITH_FORMS = {
    f"{slot} {kind}": part
    for slot, table in {"feed_forward": FEED_FORWARDS, "self": MIXERS, "norm": NORMS}.items()
    for kind, part in table.items()
    if "fused" in vars(part)
}


@pytest.mark.parametrize("change", CHANGED_LAYERS)
@pytest.mark.parametrize("name", PARTS_WITH_FORMS)
def test_part_with_a_changed_linear_layer_has_no_fused_form(name: str, change: str) -> None:
    part = build(PARTS_WITH_FORMS[name], name, dim=24)
    assert fused_form(part, object) is not None
    for child, layer in [*part.named_children()]:
        if isinstance(layer, nn.Linear):
            changed = copy.deepcopy(part)
            setattr(changed, child, CHANGED_LAYERS[change](changed.get_submodule(child)))
            assert fused_form(changed, object) is None, child


@pytest.mark.parametrize("change", CHANGED_LAYERS)
@pytest.mark.parametrize("path", ["feed_forward.up", "self.value", "cross.out"])
def test_fused_model_with_a_changed_linear_layer_equals_the_modules(change: str, path: str) -> None:
    model = model_of({"decoder": {"depth": 2}})
    block, _, layer = path.rpartition(".")
    parent = model.decoder.layers[1].get_submodule(block)
    setattr(parent, layer, CHANGED_LAYERS[change](parent.get_submodule(layer)))
    with torch.no_grad():
        assert_fused_equals_the_modules(model)


class ScaledTable(nn.Embedding):
    """A table whose rows are three times as large as its weights say."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        return 3 * super().forward(input)


@torch.inference_mode()
def test_fused_model_with_a_changed_embedding_table_equals_the_modules() -> None:
    model = model_of({})
    model.decoder.embedding.table.__class__ = ScaledTable
    assert_fused_equals_the_modules(model)


def test_fused_form_of_another_class_is_not_used() -> None:
    assert fused_form(LayerNorm(D), FusedNorm)
    assert fused_form(LayerNorm(D), FusedFeedForward) is None


def test_block_with_an_unknown_option_is_computed_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standard, "fused_options", Standard.fused_options - {"norm"})
    model = model_of({})
    assert not can_fuse_decoder(model)
    model.decoder.layers[1] = copy.deepcopy(model.decoder.layers[1])
    monkeypatch.undo()

    class OtherBlock(Standard):
        pass

    model.decoder.layers[1].__class__ = OtherBlock
    assert can_fuse_decoder(model)
    with torch.inference_mode():
        modules, fused = (log_probs(steps, model, None, 2) for steps in unfused_and_fused(model))
    torch.testing.assert_close(fused, modules, rtol=1e-5, atol=1e-5)


TABLES = [CONNECTIONS, EMBEDDINGS, FEED_FORWARDS, MIXERS, NORMALIZERS, NORMS, POSITIONS, SCORES]
KNOWN = {part for table in TABLES for part in table.values() if "fused_options" in vars(part)}


@pytest.mark.parametrize("part", sorted(KNOWN | {Stacked, PlainStack, Standard}, key=lambda part: part.__name__))
def test_fused_forms_know_every_option(part: Any) -> None:
    """Otherwise a new option would silently turn a fused form off."""
    assert option_keys(part) == part.fused_options


def test_model_with_listeners_is_not_fused() -> None:
    model = model_of({})
    fused = FusedModel(model)
    with capture(model):
        assert not can_fuse_decoder(model)
        assert not can_fuse_encoder(model)
        assert not fused.is_current()
    assert can_fuse_decoder(model)
    assert can_fuse_encoder(model)
    assert fused.is_current()


def change_in_place(model: Model) -> None:
    with torch.no_grad():
        linear_of(model).weight.add_(1.0)


def replace_weight(model: Model) -> None:
    linear_of(model).weight = nn.Parameter(linear_of(model).weight.detach().clone())


def optimizer_step(model: Model) -> None:
    optimizer = adamw(model)
    model.head.log_probs(torch.randn(3, D)).sum().backward()
    optimizer.step()


def linear_of(model: Model) -> nn.Linear:
    return next(part for part in model.modules() if isinstance(part, nn.Linear))


CHANGES: dict[str, Callable[[Model], Any]] = {
    "in place": change_in_place,
    "replaced": replace_weight,
    "optimizer step": optimizer_step,
    "replaced data": lambda model: vector_to_parameters(
        2 * parameters_to_vector(model.parameters()), model.parameters()
    ),
    "another dtype": lambda model: model.double(),
    "parametrized": lambda model: weight_norm(linear_of(model)),
    "another hook": lambda model: with_hook(linear_of(model)),
    "another layer": lambda model: model.decoder.layers.__setitem__(0, copy.deepcopy(model.decoder.layers[0])),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_weights_make_a_fused_model_outdated(name: str) -> None:
    model = model_of({"decoder": {"depth": 2}})
    fused = FusedModel(model)
    assert fused.is_current()
    CHANGES[name](model)
    assert not fused.is_current()


def token_ids(engine: Any, kind: str = "greedy") -> list[tuple[int, ...]]:
    decode = resolve(DecodeConfig, [python_layer({"search": kind})]).config
    return [outputs[0].ids for outputs in in_order(engine.generate(["a b c", "c", "b b b b"], decode))]


def engine_of(model: Model) -> Any:
    words = WordKind().learn([" ".join("abcdefghijklmnopqrs")])
    assert words.size <= V
    return torch_engine(model, words, words)


def test_engine_uses_the_current_weights() -> None:
    model = model_of({"head": "linear"})
    engine = engine_of(model)
    before = token_ids(engine)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight))
    assert token_ids(engine) == token_ids(engine_of(model)) != before
    with capture(model) as maps:
        next(engine.generate(["a b c"], resolve(DecodeConfig, [python_layer({"search": "greedy"})]).config))
    assert len(maps)


@pytest.mark.parametrize("change", [lambda model: model.bfloat16(), lambda model: model.double()])
@pytest.mark.parametrize("kind", ["greedy", "beam"])
def test_engine_runs_models_of_other_dtypes(change: Any, kind: str) -> None:
    assert len(token_ids(engine_of(change(model_of({}))), kind)) == 3


def test_engine_runs_a_model_built_in_inference_mode() -> None:
    with torch.inference_mode():
        model = model_of({})
    assert len(token_ids(engine_of(model))) == 3


@torch.inference_mode()
def test_more_positions_than_learned_are_an_error() -> None:
    learned = {"position": {"kind": "learned", "longest": 5}}
    model = model_of({"encoder": {"depth": 1, **learned}, "decoder": {"depth": 1, **learned}})
    memory = FusedEncoder(model)(torch.randint(4, V, (1, 5)), None)
    for decoder in (UnfusedDecoder(model), FusedDecoder(model), SingleDecoder(FusedDecoder(model))):
        single = decoder.single(memory)
        for _ in range(5):
            single.log_probs(5)
        with pytest.raises(SaccadeError, match=r"6 tokens is past the 5 learned .* larger model\.decoder\.position\."):
            single.log_probs(5)
    with pytest.raises(SaccadeError, match=r"6 tokens is past the 5 learned .* larger model\.encoder\.position\."):
        FusedEncoder(model)(torch.randint(4, V, (1, 6)), None)


def test_limit_threads_restores_the_setting() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with limit_threads(1):
            assert torch.get_num_threads() == 1
            with limit_threads(3):
                assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_limit_threads_in_a_concurrent_thread_does_not_become_permanent() -> None:
    """The number of threads that a thread sets is the default of threads that start later. One that starts under the
    limit of another thread must not restore that limit."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    entered, leave = threading.Event(), threading.Event()

    def second() -> None:
        with limit_threads(1):
            entered.set()
            leave.wait(10)

    try:
        with limit_threads(1):
            concurrent = threading.Thread(target=second)
            concurrent.start()
            assert entered.wait(10)
        leave.set()
        concurrent.join()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)
