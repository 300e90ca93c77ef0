"""The config: layers, kinds, options from signatures, and errors that name the key."""

import tomllib
from functools import partial
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.config import (
    Config,
    Count,
    Slot,
    build,
    leaves,
    merge,
    plain,
    python_layer,
    resolve,
    schema,
    to_toml,
    wiring,
)
from saccade.config_files import file_layers, flag_layer
from saccade.errors import BuildError, ConfigError
from saccade.models.blocks import DropoutRates
from saccade.recipe import recipe_of


class Plain:
    def __init__(self, dim: int = 3, *, size: Count = 5, from_: str = "x"):
        self.dim, self.size, self.from_ = dim, size, from_


class Fancy:
    def __init__(self, dim: int, causal: bool = False, *, rate: float = 0.5):
        if causal:
            raise BuildError("cannot be causal")
        self.dim, self.rate = dim, rate


KINDS = {"plain": Plain, "fancy": Fancy}
KindSlot = Annotated[Any, Slot(KINDS)]


class Outer:
    def __init__(self, dim: int, causal: bool = False, *, inner: KindSlot = Plain):
        self.inner = build(inner, "inner", dim=dim, causal=causal)


OUTERS = {"outer": Outer}


class Root(Config):
    depth: int = 6
    part: KindSlot = Plain
    outer: Annotated[Any, Slot(OUTERS)] = Outer
    pair: tuple[float, float] = (0.9, 0.98)


def read(*flags: str) -> Root:
    return resolve(Root, [flag_layer(flag) for flag in flags]).config


def error(*flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(*flags)
    return str(caught.value)


def test_defaults_are_choices_with_all_their_options() -> None:
    assert plain(read()) == {
        "depth": 6,
        "part": {"kind": "plain", "size": 5, "from": "x"},
        "outer": {"kind": "outer", "inner": {"kind": "plain", "size": 5, "from": "x"}},
        "pair": [0.9, 0.98],
    }


def test_option_without_a_kind_keeps_the_kind() -> None:
    assert read("part.size=7").part.options["size"] == 7
    assert read('part="fancy"', "part.rate=0.25").part.options == {"rate": 0.25}
    assert read("outer.inner.size=9").outer.options["inner"].options["size"] == 9


def test_another_kind_discards_the_options_of_the_previous_one() -> None:
    assert read('part="plain"', "part.size=7", 'part.kind="fancy"').part.options == {"rate": 0.5}
    assert read("part.size=7", 'part="fancy"').part.options == {"rate": 0.5}
    assert read('part={kind="plain", size=7}', 'part={kind="fancy", rate=0.1}').part.options == {"rate": 0.1}


def test_another_kind_discards_the_options_of_a_default_kind_that_was_not_named() -> None:
    assert read("part.size=7", 'part={kind="fancy"}').part.options == {"rate": 0.5}
    assert read("part.size=7", 'part.kind="fancy"', "part.rate=0.25").part.options == {"rate": 0.25}
    inner = read("outer.inner.size=7", 'outer.inner={kind="fancy", rate=0.1}').outer.options["inner"]
    assert inner.options == {"rate": 0.1}
    assert read("part.size=7", 'part.kind="plain"').part.options["size"] == 7


def test_another_kind_of_encoder_discards_its_block() -> None:
    base = {"data": {"tokenizer": "words"}, "model": {"encoder": {"block": {"norm": "rms"}}}}
    assert recipe_of(base, {"model": {"encoder": {"kind": "recurrent"}}}).model.encoder.kind == "recurrent"
    base = {"data": {"tokenizer": "words"}, "model": {"block": {"norm": {"eps": 1e-3}}}}
    changed = recipe_of(base, {"model": {"encoder": {"block": {"norm": {"kind": "rms"}}}}})
    assert plain(changed.model.encoder)["block"]["norm"] == {"kind": "rms", "eps": 1e-6}


def test_arrays_replace_and_tables_merge() -> None:
    over = python_layer({"a": [3], "b": {"d": 4}})
    merged = merge(python_layer({"a": [1, 2], "b": {"c": 3}}), over)
    assert {key: value.value for key, value in leaves(merged).items()} == {"a": (3,), "b.c": 3, "b.d": 4}


def test_build_passes_only_the_wiring_that_the_part_takes() -> None:
    part = build(read("part.size=7", "part.from=y").part, "part", dim=11, causal=True)
    assert (part.dim, part.size, part.from_) == (11, 7, "y")
    assert build(partial(Plain, size=2), "part", dim=4, causal=True).size == 2
    assert wiring(Fancy) == ("dim", "causal")


def test_build_error_has_the_whole_config_key() -> None:
    choice = read('outer.inner="fancy"').outer
    with pytest.raises(BuildError) as caught:
        build(choice, "outer", dim=3, causal=True)
    assert caught.value.key == ("outer", "inner")
    assert caught.value.reason == "cannot be causal"


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("dept=3", "dept: unknown key; did you mean 'depth'?"),
        ("part.sise=3", "part.sise: unknown key of 'plain'; did you mean 'size'?"),
        ("part=fanzy", "part: unknown kind 'fanzy'; did you mean 'fancy'?"),
        ("outer.inner.sizes=3", "outer.inner.sizes: unknown key of 'plain'; did you mean 'size'?"),
        ("depth='six'", "depth: expected a whole number, got 'six'"),
        ("depth=1.5", "depth: expected a whole number, got 1.5"),
        ("part.size=0", "part.size: must be greater than or equal to 1, got 0"),
        ("part=3", "part: expected one of plain, fancy, or a table with 'kind'; got 3"),
        ("part={kind='fancy', rate=nan}", "part.rate: expected a finite number, got nan"),
        ("depth=true", "depth: expected a whole number, got True"),
        ("depth", "--set depth: expected KEY=VALUE"),
        ("a..b=3", "--set a..b=3: expected KEY=VALUE"),
    ],
)
def test_error_messages_have_the_key_and_a_similar_name(flag: str, message: str) -> None:
    assert message in error(flag)


def test_missing_value_of_an_array_is_named_with_its_key() -> None:
    class Betas(Config):
        betas: tuple[float, float] = (0.9, 0.98)

    with pytest.raises(ConfigError, match=r"^betas: has too few values; value number 2 is missing$"):
        resolve(Betas, [flag_layer("betas=[0.9]")])


def test_dropout_rate_that_a_mask_cannot_have_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^residual: must be less than or equal to 0\.998, got 0\.999$"):
        resolve(DropoutRates, [flag_layer("residual=0.999")])


@pytest.mark.parametrize("extends", [3, None, ["demo", 3]])
def test_extends_of_a_recipe_in_python_must_be_names(extends: Any) -> None:
    with pytest.raises(ConfigError, match=r"^extends: expected a name or an array of names, got "):
        recipe_of({"extends": extends})


def test_all_wrong_keys_are_reported_at_once() -> None:
    assert (
        len(error("dept=3", "depht=4", "depth='x'").splitlines()) == 2
    )  # unknown keys are reported before wrong types


def test_resolved_config_has_the_origin_of_each_value() -> None:
    layers = [python_layer({"depth": 2, "part": "fancy"}, "a.toml"), flag_layer("part.rate=0.1")]
    origins = resolve(Root, layers).origins
    assert origins == {"depth": "a.toml", "part.kind": "a.toml", "part.rate": "--set part.rate"}


def test_flag_value_that_is_not_toml_is_a_string() -> None:
    assert read("part.from=../some/where").part.options["from"] == "../some/where"


def test_config_round_trips_through_toml() -> None:
    config = read('part={kind="fancy", rate=0.125}', "outer.inner.size=3", "pair=[1, 2]")
    assert resolve(Root, [python_layer(tomllib.loads(to_toml(config)))]).config == config


@given(st.integers(1, 10**9), st.floats(0, 1, allow_nan=False), st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_values_round_trip_through_toml(size: int, rate: float, text: str) -> None:
    tree = {"depth": size, "part": {"kind": "plain", "size": size, "from": text}, "pair": [rate, 1.0]}
    config = resolve(Root, [python_layer(tree)]).config
    assert resolve(Root, [python_layer(tomllib.loads(to_toml(config)))]).config == config


def test_schema_has_the_keyword_only_parameters() -> None:
    assert set(schema("plain", Plain).model_fields) == {"size", "from"}


def test_recipe_overrides_what_it_extends(tmp_path: Any) -> None:
    (tmp_path / "base.toml").write_text('depth = 1\npart = { kind = "plain", size = 2 }\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.toml").write_text('extends = "../base.toml"\npart.size = 3\n')
    resolved = resolve(Root, file_layers(str(tmp_path / "sub" / "mine.toml")))
    assert (resolved.config.depth, resolved.config.part.options["size"]) == (1, 3)
    assert resolved.origins["depth"].endswith("base.toml")
    assert resolved.origins["part.size"].endswith("mine.toml")


def test_circular_extends_is_an_error(tmp_path: Any) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"\n')
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n')
    with pytest.raises(ConfigError, match="extends itself, through "):
        file_layers(str(tmp_path / "a.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("depth = ", "not valid TOML"),
        ("extends = 3", "expected a name or an array of names"),
        ('extends = "nope"', "no such"),
    ],
)
def test_bad_recipe_file_is_an_error(tmp_path: Any, text: str, message: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        file_layers(str(tmp_path / "bad.toml"))
