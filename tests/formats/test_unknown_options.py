"""A format declines what it does not know of: options, classes and config keys that were added after it was written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from formats.small import POST, make_run, outputs_of, recipe
from saccade.config import Count, Positive, Slot, option_keys
from saccade.errors import RunError
from saccade.formats import ctranslate2, marian, onnx
from saccade.formats.known_options import KnownOptions
from saccade.formats.onnx_graphs import REPLACED_KINDS
from saccade.formats.transformer_spec import KNOWN_MODEL_KEYS, KNOWN_PARTS
from saccade.models.assemble import ModelConfig
from saccade.models.blocks import Standard
from saccade.models.stacked import Stacked
from saccade.parts import CELLS, FEED_FORWARDS, NORMS, POSITIONS, LayerNorm, Learned, PlainFeedForward
from saccade.parts.cells import RecurrentNet, gru
from saccade.parts.fast_linear import FastLinear

WhyNot = Callable[[Any], str | None]
FORMATS: dict[str, tuple[WhyNot, dict[str, Any]]] = {
    "CTranslate2": (ctranslate2.why_not, {}),
    "Marian": (marian.why_not, POST),
}


class ScaledNorm(LayerNorm):
    """A layer norm that is like the built-in one except for an option."""

    def __init__(self, dim: int, *, eps: Positive = 1e-5, factor: Positive = 3.0):
        super().__init__(dim, eps=eps)
        self.factor = factor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        return self.factor * super().forward(input)


class Subclassed(PlainFeedForward):
    """A part with the options of the built-in one, which computes something else."""

    def forward(self, x: Tensor, places: Any) -> Tensor:
        return -super().forward(x, places)


class ScaledLearned(Learned):
    """Learned positions with a new option."""

    def __init__(self, dim: int, *, longest: Count = 512, factor: Positive = 3.0):
        super().__init__(dim, longest=longest)
        self.factor = factor


def scaled_gru(
    inputs: int, dim: int, depth: int = 1, bidirectional: bool = False, dropout: float = 0.0, *, factor: Positive = 3.0
) -> RecurrentNet:
    return gru(inputs, dim, depth, bidirectional, dropout)


@pytest.mark.parametrize("name", FORMATS)
def test_class_that_replaces_a_known_kind_is_declined(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    why_not, model = FORMATS[name]
    assert why_not(recipe(model)) is None
    monkeypatch.setitem(FEED_FORWARDS, "plain", Subclassed)
    monkeypatch.setattr(Slot, "kind_of", lambda self, default: kind_by_name(self.table, default))
    reason = why_not(recipe(model)) or ""
    assert reason.startswith("model.encoder.block.feed_forward: the export to ")
    assert 'does not know the class Subclassed of "plain"' in reason


def kind_by_name(table: Any, default: Any) -> str:
    """The kind of a default, also where a test has replaced its class."""
    found = (kind for kind, entry in table.items() if default in (entry, *getattr(entry, "__mro__", ())))
    return getattr(default, "kind", None) or next(found)


@pytest.mark.parametrize("name", FORMATS)
def test_unknown_option_is_declined_with_its_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it has its default value: the format cannot know what that means."""
    why_not, model = FORMATS[name]
    monkeypatch.setitem(NORMS, "layer", ScaledNorm)
    monkeypatch.setitem(KNOWN_PARTS, ScaledNorm, {"eps"})  # type: ignore[misc]  # as if LayerNorm itself had the option
    monkeypatch.setattr(Slot, "kind_of", lambda self, default: kind_by_name(self.table, default))
    reason = why_not(recipe(model)) or ""
    assert reason.startswith("model.encoder.block.norm.factor: the export to ")
    assert 'does not know this option of "layer"' in reason


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("part", "key"), [(Standard, "model.encoder.block"), (Stacked, "model.encoder")])
def test_new_slot_is_declined_with_its_key(name: str, part: type, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    why_not, model = FORMATS[name]
    option = sorted(KNOWN_PARTS[part])[0]
    monkeypatch.setitem(KNOWN_PARTS, part, KNOWN_PARTS[part] - {option})  # type: ignore[index]  # a dict
    assert (why_not(recipe(model)) or "").startswith(f"{key}.{option}: the export to ")


@pytest.mark.parametrize("name", FORMATS)
def test_new_key_of_the_model_is_declined(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    why_not, model = FORMATS[name]
    module = "saccade.formats.transformer_spec"
    monkeypatch.setattr(f"{module}.KNOWN_MODEL_KEYS", KNOWN_MODEL_KEYS - {"shared_embeddings"})
    assert (why_not(recipe(model)) or "").startswith("model.shared_embeddings: the export to ")


class Lora(FastLinear):
    """A linear layer with something added to its result."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        return super().forward(input) + 1


def replace_layer(parent: nn.Module) -> str:
    parent.get_submodule("up").__class__ = Lora
    return "is of the class Lora"


def add_hook(parent: nn.Module) -> str:
    parent.get_submodule("up").register_forward_hook(lambda module, inputs, output: 2 * output)
    return "has a hook"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("change", [replace_layer, add_hook])
def test_changed_module_is_declined_by_name(name: str, change: Callable[[Any], str], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", FORMATS[name][1])
    what = change(run.model.decoder.layers[0].feed_forward)
    write = {"CTranslate2": ctranslate2.write, "Marian": marian.write}[name]
    with pytest.raises(RunError, match=f"^decoder.layers.0.feed_forward.up: the export to .* it {what}; "):
        write(run, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


REPLACED: dict[str, tuple[dict[str, Any], str, Any, dict[str, Any], str]] = {
    "positions": (
        POSITIONS,
        "learned",
        ScaledLearned,
        {"encoder": {"position": "learned"}},
        "model.encoder.position.factor: ",
    ),
    "cells": (
        CELLS,
        "gru",
        scaled_gru,
        {"encoder": {"kind": "recurrent", "cell": "gru"}},
        "model.encoder.cell.factor: ",
    ),
}


@pytest.mark.parametrize("name", REPLACED)
def test_onnx_declines_unknown_options_of_parts_that_it_replaces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, kind, part, model, reason = REPLACED[name]
    assert onnx.why_not(recipe(model)) is None
    monkeypatch.setitem(table, kind, part)
    monkeypatch.setitem(REPLACED_KINDS, part, set())  # type: ignore[misc]  # as if the built-in part had the option
    monkeypatch.setattr(Slot, "kind_of", lambda self, default: kind_by_name(self.table, default))
    if name == "cells":
        monkeypatch.setattr(Slot, "kind_of", lambda self, default: default_cell(self.table, default))
    assert (onnx.why_not(recipe(model)) or "").startswith(reason)


def default_cell(table: Any, default: Any) -> str:
    return "gru" if default is gru else kind_by_name(table, default)


@pytest.mark.usefixtures("without_shape_checks")
def test_onnx_exports_unknown_options_of_parts_that_it_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(NORMS, "scaled", ScaledNorm)
    run = make_run(tmp_path / "run", {"block": {"norm": "scaled"}})
    assert onnx.why_not(run.recipe) is None
    onnx.write(run, tmp_path / "folder")
    decode = run.recipe.decode
    expected = [output[0].ids for output in outputs_of(run.engine, decode)]
    assert [output[0].ids for output in outputs_of(onnx.open(tmp_path / "folder"), decode)] == expected


@pytest.mark.parametrize("known", [KNOWN_PARTS, REPLACED_KINDS], ids=["CTranslate2 and Marian", "ONNX"])
def test_formats_know_every_option_of_the_parts_they_export(known: KnownOptions) -> None:
    """Otherwise a new option would silently prevent every export."""
    assert {part: option_keys(part) for part in known} == dict(known)


def test_formats_know_every_key_of_the_model() -> None:
    assert ModelConfig.model_fields.keys() == KNOWN_MODEL_KEYS
