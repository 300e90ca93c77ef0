"""Exceptions per layer: merged over the block, checked as a block, stored and read again."""

import tomllib
from typing import Any

import pytest
import torch

from contracts.variants import DEFAULT
from saccade.config import Choice, merged_tables, plain, python_layer, resolve, to_toml
from saccade.errors import ConfigError
from saccade.models.stacked import Stacked
from saccade.parts import LayerNorm, MultiHead, PlainFeedForward, PostNorm, Unprojected
from saccade.parts.feed_forwards import GatedFeedForward
from saccade.parts.norms import RMSNorm
from saccade.recipe import Recipe, recipe_of

BLOCK = {"self": {"heads": 2}, "cross": {"heads": 2}, "feed_forward": {"inner": 9, "activation": "gelu"}}


def recipe_with(exceptions: Any, side: str = "encoder", **model: Any) -> Recipe:
    sides = {"encoder": {"depth": 3}, "decoder": {"depth": 3}}
    sides[side] |= {"exceptions": exceptions}
    return recipe_of({"data": {"tokenizer": "words"}, "model": {"dim": 16, "block": BLOCK, **sides, **model}})


def exceptions_of(recipe: Recipe, side: str = "encoder") -> Any:
    return plain(getattr(recipe.model, side))["exceptions"]


def blocks_of(recipe: Recipe, side: str = "encoder") -> Any:
    """The blocks of the exceptions, with all of their options."""
    exceptions = getattr(recipe.model, side).options["exceptions"]
    return [plain(Choice(e.kind, e.factory, e.options)) for e in exceptions]


def test_exception_is_merged_over_the_block() -> None:
    recipe = recipe_with([{"at": [1], "feed_forward": {"activation": "swish"}}, {"at": [0, 2], "norm": "rms"}])
    block = plain(recipe.model.encoder)["block"]
    first, second = blocks_of(recipe)
    assert first == merged_tables(block, {"feed_forward": {"activation": "swish"}})
    assert first["feed_forward"] == {"kind": "plain", "inner": 9, "activation": "swish"}
    assert second["norm"] == {"kind": "rms", "eps": 1e-6}
    assert exceptions_of(recipe, "decoder") == []


def test_only_the_changes_of_an_exception_are_stored() -> None:
    recipe = recipe_with(
        [{"at": [1], "feed_forward": {"activation": "swish"}}, {"at": [0, 2], "norm": "rms", "self": {"score": "dot"}}]
    )
    assert exceptions_of(recipe) == [
        {"at": [1], "feed_forward": {"activation": "swish"}},
        {"at": [0, 2], "norm": {"kind": "rms", "eps": 1e-6}, "self": {"score": {"kind": "dot"}}},
    ]


def test_recipe_that_extends_a_stored_config_changes_the_layers_of_exceptions_too() -> None:
    stored = tomllib.loads(to_toml(recipe_with([{"at": [1], "norm": "rms"}])))
    changed = recipe_of(stored, {"model": {"encoder": {"block": {"feed_forward": {"inner": 13}}}}})
    (block,) = blocks_of(changed)
    assert block["feed_forward"] == {"kind": "plain", "inner": 13, "activation": "gelu"}
    assert block["norm"]["kind"] == "rms"


def test_new_kind_forgets_the_options_of_the_old_kind() -> None:
    recipe = recipe_with([{"at": [1], "feed_forward": "gated"}, {"at": [0], "feed_forward": {"kind": "gated"}}])
    for exception in exceptions_of(recipe):
        assert exception["feed_forward"] == {"kind": "gated", "inner": 1365, "activation": "swish"}


def test_exceptions_of_both_sides_lie_over_the_shorthand() -> None:
    """`model.block` lies under the block of each side, and that under its exceptions."""
    exception = [{"at": [0], "self": {"score": "dot"}}]
    for side in ("encoder", "decoder"):
        merged = blocks_of(recipe_with(exception, side), side)[0]
        assert (merged["self"]["heads"], merged["self"]["score"]) == (2, {"kind": "dot"})


def test_layers_are_built_as_their_exceptions_say() -> None:
    exceptions = [{"at": [1], "feed_forward": "gated", "self": "unprojected"}, {"at": [2], "norm": "rms"}]
    encoder = DEFAULT.changed(encoder=DEFAULT.tree["encoder"] | {"depth": 3, "exceptions": exceptions}).fresh().encoder
    assert isinstance(encoder, Stacked)
    parts = [
        (type(layer.get_submodule("self")), type(layer.get_submodule("feed_forward")), type(norm))
        for layer in encoder.layers
        for norm in [layer.get_submodule("residual_self.norm")]
    ]
    assert parts == [
        (MultiHead, PlainFeedForward, LayerNorm),
        (Unprojected, GatedFeedForward, LayerNorm),
        (MultiHead, PlainFeedForward, RMSNorm),
    ]


@pytest.mark.parametrize(("last", "has_final_norm"), [("pre", True), ("post", False)])
def test_last_layer_decides_about_the_final_norm(last: str, has_final_norm: bool) -> None:
    exceptions = [{"at": [0, 1][:1], "connection": "post"}, {"at": [1], "connection": last}]
    encoder = DEFAULT.changed(encoder=DEFAULT.tree["encoder"] | {"exceptions": exceptions}).fresh().encoder
    assert isinstance(encoder, Stacked)
    assert isinstance(encoder.layers[0].get_submodule("residual_self"), PostNorm)
    assert isinstance(encoder.final_norm, LayerNorm) == has_final_norm


def test_config_with_exceptions_survives_toml() -> None:
    config = recipe_with([{"at": [1, 2], "feed_forward": "gated"}, {"at": [0], "norm": {"eps": 1e-3}}])
    again = resolve(Recipe, [python_layer(tomllib.loads(to_toml(config)))]).config
    assert again == config
    assert to_toml(again) == to_toml(config)


def test_empty_list_of_exceptions_changes_nothing() -> None:
    first = DEFAULT.fresh().state_dict()
    second = DEFAULT.changed(encoder=DEFAULT.tree["encoder"] | {"exceptions": []}).fresh().state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


NUMBERS = "expected an array of layer numbers, counted from 0, such as [0, 2]"
NORM = {"norm": "rms"}
ERRORS: dict[str, tuple[Any, str]] = {
    "unknown kind": (
        [{"at": [1], "feed_forward": "gatd"}],
        ".0.feed_forward: unknown kind 'gatd'; did you mean 'gated'?",
    ),
    "unknown key": (
        [{"at": [0], **NORM}, {"at": [1], "nrm": "rms"}],
        ".1.nrm: unknown key of 'standard'; did you mean 'norm'?",
    ),
    "wrong type": (
        [{"at": [1], "feed_forward": {"inner": "x"}}],
        ".0.feed_forward.inner: expected a whole number, got 'x'",
    ),
    "cannot be built": (
        [{"at": [1], "self": {"heads": 5}}],
        ".0.self: heads = 5 does not divide the width 16; use a divisor, or set key_width and value_width",
    ),
    "no numbers": ([{"feed_forward": "gated"}], f".0.at: {NUMBERS}"),
    "empty numbers": ([{"at": [], **NORM}], f".0.at: {NUMBERS}; got []"),
    "negative": ([{"at": [-1], **NORM}], f".0.at: {NUMBERS}; got [-1]"),
    "a number": ([{"at": 1, **NORM}], f".0.at: {NUMBERS}; got 1"),
    "a fraction": ([{"at": [0.5], **NORM}], f".0.at: {NUMBERS}; got [0.5]"),
    "no changes": (
        [{"at": [0]}],
        ".0: changes nothing; name what is different in these layers, or leave the exception out",
    ),
    "no such layer": (
        [{"at": [1, 3], **NORM}],
        ".0.at: there is no layer 3: the 3 layers are numbered from 0 to 2",
    ),
    "named twice": (
        [{"at": [1], **NORM}, {"at": [0, 1], **NORM}],
        ".1.at: layer 1 is named twice; name each layer once",
    ),
    "twice in one": ([{"at": [1, 1], **NORM}], ".0.at: layer 1 is named twice; name each layer once"),
    "no table": (["gated"], ".0: expected a table with 'at'; got 'gated'"),
    "no array": ({"at": [1]}, ": expected an array in brackets, got {'at': (1,)}"),
    "without effect": (
        [{"at": [1], "cross": {"heads": 4}}],
        ".0.cross: has no effect, because nothing in this model uses it; leave it out",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error_of_an_exception_names_its_full_key(name: str) -> None:
    exceptions, message = ERRORS[name]
    with pytest.raises(ConfigError) as raised:
        recipe_with(exceptions)
    assert str(raised.value) == f"model.encoder.exceptions{message}"


def test_key_without_effect_is_that_of_the_block_and_not_of_its_exceptions() -> None:
    exceptions = [{"at": [0], "feed_forward": {"inner": 7}}]
    with pytest.raises(ConfigError, match=r"^model\.decoder\.block\.cross: has no effect"):
        recipe_with(exceptions, "decoder", decoder={"depth": 1, "block": {"cross": {"heads": 4}}}, encoder="none")


def test_block_that_only_exceptions_are_merged_over_has_an_effect() -> None:
    score = {"encoder": {"depth": 1, "block": {"self": {"score": "dot"}}}}
    of_all_layers = {"exceptions": [{"at": [0], "self": {"heads": 4}}]}
    recipe = recipe_with([], encoder=score["encoder"] | of_all_layers)
    assert blocks_of(recipe)[0]["self"]["score"] == {"kind": "dot"}
    of_all_layers = {"exceptions": [{"at": [0], "self": "unprojected"}]}
    with pytest.raises(ConfigError, match=r"^model\.encoder\.block\.self: has no effect"):
        recipe_with([], encoder=score["encoder"] | of_all_layers)


def test_error_of_the_block_is_not_repeated_for_its_exceptions() -> None:
    with pytest.raises(ConfigError, match=r"^model\.encoder\.block\.norm: unknown kind 'rm'[^\n]*$"):
        recipe_with(
            [{"at": [1], "feed_forward": "gated"}], block=BLOCK | {"norm": "rm"}, decoder={"block": {"norm": "rms"}}
        )
