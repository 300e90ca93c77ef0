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
    file_layers,
    flag_layer,
    leaves,
    merge,
    plain,
    python_layer,
    resolve,
    schema,
    to_toml,
    wiring,
)
from saccade.errors import BuildError, ConfigError


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


def test_an_option_alone_keeps_the_kind() -> None:
    assert read("part.size=7").part.options["size"] == 7
    assert read('part="fancy"', "part.rate=0.25").part.options == {"rate": 0.25}
    assert read("outer.inner.size=9").outer.options["inner"].options["size"] == 9


def test_a_new_kind_forgets_the_options_of_the_old_one() -> None:
    assert read('part="plain"', "part.size=7", 'part.kind="fancy"').part.options == {"rate": 0.5}
    assert read("part.size=7", 'part="fancy"').part.options == {"rate": 0.5}
    assert read('part={kind="plain", size=7}', 'part={kind="fancy", rate=0.1}').part.options == {"rate": 0.1}


def test_arrays_replace_and_tables_merge() -> None:
    over = python_layer({"a": [3], "b": {"d": 4}})
    merged = merge(python_layer({"a": [1, 2], "b": {"c": 3}}), over)
    assert {key: value.value for key, value in leaves(merged).items()} == {"a": (3,), "b.c": 3, "b.d": 4}


def test_a_choice_builds_its_part_with_the_wiring_it_asks_for() -> None:
    part = build(read("part.size=7", "part.from=y").part, "part", dim=11, causal=True)
    assert (part.dim, part.size, part.from_) == (11, 7, "y")
    assert build(partial(Plain, size=2), "part", dim=4, causal=True).size == 2
    assert wiring(Fancy) == ("dim", "causal")


def test_a_refusal_gathers_its_key_on_the_way_out() -> None:
    choice = read('outer.inner="fancy"').outer
    with pytest.raises(BuildError) as caught:
        build(choice, "outer", dim=3, causal=True)
    assert caught.value.key == ("outer", "inner")
    assert caught.value.reason == "cannot be causal"


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("dept=3", "dept: unknown key; did you mean 'depth'?"),
        ("part.sise=3", "part.sise: unknown key of 'plain'; did you mean 'size'?"),
        ("part=fanzy", "part: unknown kind 'fanzy'; did you mean 'fancy'?"),
        ("outer.inner.sizes=3", "outer.inner.sizes: unknown key of 'plain'; did you mean 'size'?"),
        ("depth='six'", "depth: expected a whole number, got 'six'"),
        ("depth=1.5", "depth: expected a whole number, got 1.5"),
        ("part.size=0", "part.size: expected greater than or equal to 1, got 0"),
        ("part=3", "part: expected one of plain, fancy, or a table with 'kind'; got 3"),
        ("part={kind='fancy', rate=nan}", "part.rate: expected a finite number, got nan"),
        ("depth=true", "depth: expected a whole number, got True"),
        ("depth", "--set depth: expected KEY=VALUE"),
        ("a..b=3", "--set a..b=3: expected KEY=VALUE"),
    ],
)
def test_errors_name_the_key_and_the_nearest_name(flag: str, says: str) -> None:
    assert says in error(flag)


def test_all_wrong_keys_are_told_at_once() -> None:
    assert len(error("dept=3", "depht=4", "depth='x'").splitlines()) == 2  # unknown keys come before types


def test_every_value_knows_who_gave_it() -> None:
    layers = [python_layer({"depth": 2, "part": "fancy"}, "a.toml"), flag_layer("part.rate=0.1")]
    origins = resolve(Root, layers).origins
    assert origins == {"depth": "a.toml", "part.kind": "a.toml", "part.rate": "--set part.rate"}


def test_a_value_that_is_not_toml_is_text() -> None:
    assert read("part.from=../some/where").part.options["from"] == "../some/where"


def test_a_config_comes_back_from_its_own_toml() -> None:
    config = read('part={kind="fancy", rate=0.125}', "outer.inner.size=3", "pair=[1, 2]")
    assert resolve(Root, [python_layer(tomllib.loads(to_toml(config)))]).config == config


@given(st.integers(1, 10**9), st.floats(0, 1, allow_nan=False), st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_values_survive_toml(size: int, rate: float, text: str) -> None:
    tree = {"depth": size, "part": {"kind": "plain", "size": size, "from": text}, "pair": [rate, 1.0]}
    config = resolve(Root, [python_layer(tree)]).config
    assert resolve(Root, [python_layer(tomllib.loads(to_toml(config)))]).config == config


def test_the_signature_is_the_schema() -> None:
    assert set(schema("plain", Plain).model_fields) == {"size", "from"}


def test_extends_puts_files_below(tmp_path: Any) -> None:
    (tmp_path / "base.toml").write_text('depth = 1\npart = { kind = "plain", size = 2 }\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.toml").write_text('extends = "../base.toml"\npart.size = 3\n')
    resolved = resolve(Root, file_layers(str(tmp_path / "sub" / "mine.toml")))
    assert (resolved.config.depth, resolved.config.part.options["size"]) == (1, 3)
    assert resolved.origins["depth"].endswith("base.toml")
    assert resolved.origins["part.size"].endswith("mine.toml")


def test_a_circle_of_extends_is_told(tmp_path: Any) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"\n')
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n')
    with pytest.raises(ConfigError, match="extends itself"):
        file_layers(str(tmp_path / "a.toml"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("depth = ", "not valid TOML"),
        ("extends = 3", "expected a name or an array of names"),
        ('extends = "nope"', "no such"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Any, text: str, says: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        file_layers(str(tmp_path / "bad.toml"))
