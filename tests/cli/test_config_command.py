"""`saccade config show`, and the errors of recipes that cannot be trained."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def origins(text: str) -> dict[str, tuple[str, str]]:
    """Key → (value, where it was set), from the output of `config show`."""
    rows = re.findall(r"^(\S+) = (.*?)\s+# (.*)$", text, re.MULTILINE)
    return {key: (value, origin) for key, value, origin in rows}


def test_config_show_names_the_origin_of_each_value(call: Call, tmp_path: Path):
    base, recipe = tmp_path / "base.toml", tmp_path / "mine.toml"
    base.write_text('extends = "transformer-tiny"\n[train]\nkeep = 7\nclip = 0.5\n', "utf-8")
    recipe.write_text(
        'extends = "base.toml"\n[train]\nkeep = 8\n[data]\ntrain = { kind = "copy" }\ndev = "copy"\n', "utf-8"
    )
    result = call("config", "show", recipe, "--set", "train.updates=9", "--set=model.encoder.depth=2")
    assert (result.code, result.err) == (0, "")
    values = origins(result.out)
    assert values["train.keep"] == ("8", str(recipe))
    assert values["train.clip"] == ("0.5", str(base))
    assert values["train.updates"] == ("9", "--set train.updates")
    assert values["model.encoder.depth"] == ("2", "--set model.encoder.depth")
    assert values["model.decoder.depth"] == ("4", "preset transformer-tiny")
    assert values["model.encoder.block.self.heads"] == ("4", "preset transformer-tiny")
    assert values["train.patience"] == ("0", "default")
    assert values["data.dev.kind"] == ('"copy"', str(recipe))
    assert values["data.train.rows"] == ("1000", "default")
    assert len(values) == len(result.out.splitlines()) > 60


def test_config_show_names_the_origin_of_the_values_of_an_exception(call: Call, tmp_path: Path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'extends = "transformer-tiny"\n[data]\ntrain = "copy"\ndev = "copy"\n[model.block]\nnorm = { eps = 1e-3 }\n'
        '[[model.encoder.exceptions]]\nat = [1, 3]\nfeed_forward = "gated"\n',
        "utf-8",
    )
    result = call("config", "show", recipe)
    assert (result.code, result.err) == (0, "")
    values, key = origins(result.out), "model.encoder.exceptions.0"
    assert values[f"{key}.at"] == ("[1, 3]", str(recipe))
    assert values[f"{key}.feed_forward.kind"] == ('"gated"', str(recipe))
    assert values[f"{key}.feed_forward.inner"] == ("1365", "default")
    assert not [name for name in values if name.startswith((f"{key}.norm", f"{key}.self"))]  # those of the block


def test_config_show_as_json(call: Call, recipe: Path):
    result = call("config", "show", recipe, "--json", "--set", "seed=5")
    values = json.loads(result.out)
    assert values["seed"] == {"value": 5, "from": "--set seed"}
    assert values["model.dim"] == {"value": 32, "from": str(recipe)}
    assert values["train.patience"] == {"value": 0, "from": "default"}


def test_validation_option_does_not_change_the_validation_search(call: Call, tmp_path: Path):
    flags = ["--set", "train.validation.ratio=3.0"]
    before, after = (origins(call("config", "show", "transformer-tiny", *more).out) for more in ([], flags))
    assert before["train.validation.search.kind"] == after["train.validation.search.kind"] == ('"greedy"', "default")


@pytest.mark.parametrize(
    ("name", "depth", "dim", "heads", "inner"),
    [
        ("transformer-tiny", 4, 128, 4, 256),
        ("transformer-small", 3, 256, 4, 1024),
        ("transformer-base", 6, 512, 8, 2048),
        ("transformer-big", 6, 1024, 16, 4096),
    ],
)
def test_presets_have_their_documented_sizes(call: Call, name: str, depth: int, dim: int, heads: int, inner: int):
    result = call("config", "show", name, "--set", "data.train=copy", "--set", "data.dev=copy", "--json")
    values = {key: fact["value"] for key, fact in json.loads(result.out).items()}
    assert values["model.dim"] == dim
    for side in ("encoder", "decoder"):
        assert values[f"model.{side}.depth"] == depth
        assert values[f"model.{side}.block.self.heads"] == heads
        assert values[f"model.{side}.block.feed_forward.inner"] == inner


# ── invalid values ────────────────────────────────────────────────────────────────────────────────


INVALID_VALUES = {
    "an unknown table": ("trian.updates=3", "trian: unknown key; did you mean 'train'?"),
    "an unknown key": ("train.updats=3", "train.updats: unknown key; did you mean 'updates'?"),
    "an unknown nested key": (
        "model.encoder.block.self.haeds=2",
        "model.encoder.block.self.haeds: unknown key of 'multi_head'; did you mean 'heads'?",
    ),
    "an unknown key of model.block": ("model.block.nrom=layer", "model.encoder.block.nrom: unknown key"),
    "an option of a kind that has none": (
        'model.encoder={kind="none", depth=2}',
        "model.encoder.depth: unknown key of 'none', which has no options",
    ),
    "an unknown word for true or false": (
        "model.shared_embeddings=True",
        "model.shared_embeddings: must be 'auto', true or false, got 'True'",
    ),
    "an array for a kind": ("model.encoder.kind=[{a=1}]", "model.encoder: expected one of stacked, recurrent, none"),
    "an array for an encoder": ("model.encoder=[{a=1}]", "model.encoder: expected one of stacked, recurrent, none"),
    "an unknown key without a similar one": ("train.zzz=1", "train.zzz: unknown key (known: average, "),
    "an unknown kind": (
        "train.schedule=inverse_rot",
        "train.schedule: unknown kind 'inverse_rot'; did you mean 'inverse_root'?",
    ),
    "an unknown kind of data": ("data.train.kind=pears", "data.train: unknown kind 'pears'; did you mean 'pairs'?"),
    "an option of another kind": ("data.train.src=a", "data.train.src: unknown key of 'sort'"),
    "text for a number": ("train.updates=many", "train.updates: expected a whole number, got 'many'"),
    "a fraction for a whole number": ("train.updates=1.5", "train.updates: expected a whole number, got 1.5"),
    "a number for true or false": ("data.skip_bad=1", "data.skip_bad: expected true or false, got 1"),
    "a number for text": ("data.folder=3", "data.folder: expected text in quotes, got 3"),
    "a value below the minimum": ("model.dim=0", "model.dim: must be greater than or equal to 1, got 0"),
    "a value above the maximum": (
        "model.dropout.residual=1.0",
        "model.dropout.residual: must be less than or equal to 0.998, got 1.0",
    ),
    "NaN": ("train.clip=nan", "train.clip: expected a finite number, got nan"),
    "a value that is not in the list": (
        "train.best_by=belu",
        "train.best_by: the task 'translation' has no metric 'belu' (known: auto, loss, bleu",
    ),
    "an array for a table": ("train=[1]", "train: expected a table"),
}


@pytest.mark.parametrize("case", INVALID_VALUES)
def test_invalid_value_is_refused_with_its_key(case: str, call: Call, recipe: Path, tmp_path: Path):
    flag, message = INVALID_VALUES[case]
    for command in (["config", "show", recipe], ["train", recipe, "--run", tmp_path / "run"]):
        result = call(*command, "--set", flag)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("saccade: ")
        assert message in result.err
        assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists()


def test_all_mistakes_are_listed_at_once(call: Call, recipe: Path):
    flags = ["train.updats=3", "model.dim=x", "model.dropout.residual=2.0"]
    result = call("config", "show", recipe, *[part for flag in flags for part in ("--set", flag)])
    for key in ("train.updats", "model.dim", "model.dropout.residual"):
        assert f"{key}: " in result.err


def test_recipe_without_data_is_refused(call: Call, tmp_path: Path):
    assert call("config", "show", "transformer-tiny").code == 0
    result = call("train", "transformer-tiny", "--run", tmp_path / "run")
    assert result.code == 1
    assert "data.train: there are no rows; set data.train as docs/config.md shows" in result.err


INCONSISTENT_SETTINGS = {
    "heads that do not divide the width": (
        "model.decoder.block.cross.heads=3",
        "model.decoder.block.cross: heads = 3 does not divide the width 32",
    ),
    "heads of encoder and decoder that do not divide it": (
        "model.block.self.heads=3",
        "model.encoder.block.self: heads = 3 does not",
    ),
    "shared embeddings of two vocabularies": ("data.joint=false", "model.shared_embeddings: needs one vocabulary"),
    "cross-attention in an encoder": (
        "model.encoder.block.cross.heads=1",
        "model.encoder.block.cross: has no effect, because nothing in this model uses it; leave it out",
    ),
    "cross-attention without an encoder": (
        'model={encoder="none", decoder={block={cross={heads=1}}}}',
        "model.decoder.block.cross: has no effect, because nothing in this model uses it; leave it out",
    ),
    "no decoder to generate with": (
        'model.decoder="none"',
        "model.decoder: the task generates text and needs a decoder",
    ),
    "more outputs than beams": (
        'decode.search={kind="beam", size=2, best=4}',
        "decode.search.best: a beam of size = 2 has at most 2 outputs, got best = 4; raise size or lower best",
    ),
    "more outputs than beams in validation": (
        'train.validation.search={kind="beam", size=2, best=4}',
        "train.validation.search.best: a beam of size = 2 has at most 2 outputs, got best = 4; raise size",
    ),
    "a probability above one": (
        'decode.search={kind="sample", top_p=1.5}',
        "decode.search.top_p: must be a probability of at most 1, got 1.5",
    ),
    "batches smaller than a sentence": (
        "train.batch_tokens=20",
        "train.batch_tokens: 20 is less than the longest row, which takes 21 positions with data.longest = 20",
    ),
    "no rows": ("data.train.rows=0", "data.train.rows: must be at least 1"),
    "an unknown split": ("data.dev.split=dve", "data.dev.split: unknown split 'dve'"),
    "a negative column": (
        'data.train={kind="tsv", file="f", src=-1}',
        "data.train.src: column numbers start at 0, got -1",
    ),
}


@pytest.mark.parametrize("case", INCONSISTENT_SETTINGS)
def test_inconsistent_setting_is_refused_with_its_key(case: str, call: Call, recipe: Path, tmp_path: Path):
    flag, message = INCONSISTENT_SETTINGS[case]
    for command in (["config", "show", recipe], ["train", recipe, "--run", tmp_path / "run"]):
        result = call(*command, "--set", flag)
        assert (result.code, result.out) == (1, "")
        assert message in result.err
        assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists()


# ── recipes that extend others ────────────────────────────────────────────────────────────────────


def test_extended_recipe_path_is_relative_to_the_extending_recipe(call: Call, tmp_path: Path, recipe: Path):
    (tmp_path / "inner").mkdir()
    shutil.copy(recipe, tmp_path / "inner" / "a.toml")
    (tmp_path / "inner" / "b.toml").write_text('extends = "a.toml"\nseed = 2\n[train]\nkeep = 3\n', "utf-8")
    (tmp_path / "c.toml").write_text('extends = ["inner/b.toml"]\nseed = 4\n', "utf-8")
    values = origins(call("config", "show", tmp_path / "c.toml").out)
    assert values["seed"] == ("4", str(tmp_path / "c.toml"))
    assert values["train.keep"] == ("3", str(tmp_path / "inner" / "b.toml"))
    assert values["train.updates"] == ("60", str(tmp_path / "inner" / "a.toml"))


def test_last_of_several_extended_recipes_wins(call: Call, tmp_path: Path, recipe: Path):
    for number in (1, 2):
        (tmp_path / f"{number}.toml").write_text(f'extends = "{recipe}"\n[train]\nkeep = {number}\n', "utf-8")
    (tmp_path / "both.toml").write_text('extends = ["1.toml", "2.toml"]\n', "utf-8")
    assert origins(call("config", "show", tmp_path / "both.toml").out)["train.keep"][0] == "2"


def test_cycle_of_extends_is_refused(call: Call, tmp_path: Path):
    for name, extended in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.toml").write_text(f'extends = "{extended}.toml"\n', "utf-8")
    result = call("config", "show", tmp_path / "a.toml")
    assert result.code == 2
    assert f"{tmp_path / 'a.toml'}: extends itself, through " in result.err
    assert "c.toml" in result.err


def test_cycle_of_extends_through_another_path_is_refused(call: Call, tmp_path: Path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.toml").write_text('extends = "../d/a.toml"\n', "utf-8")
    assert "extends itself" in call("config", "show", tmp_path / "d" / "a.toml").err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "transformer-tny"\n', "no such recipe or preset; did you mean 'transformer-tiny'?"),
        ("extends = 3\n", "extends: expected a name or an array of names, got 3"),
        ("seed = \n", "not valid TOML"),
        ("seed = 1\nseed = 2\n", "not valid TOML"),
        ("\0", "not valid TOML"),
    ],
)
def test_unreadable_recipe_is_refused_with_its_path(text: str, message: str, call: Call, tmp_path: Path):
    (tmp_path / "r.toml").write_text(text, "utf-8")
    result = call("config", "show", tmp_path / "r.toml")
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert str(tmp_path) in result.err


def test_missing_recipe_is_answered_with_the_nearest_name(call: Call, recipe: Path):
    result = call("train", recipe.with_name("tinny.toml"))
    assert result.code == 2
    assert "no such recipe or preset; did you mean 'tiny.toml'?" in result.err


def test_binary_file_or_folder_as_recipe_is_refused(call: Call, tmp_path: Path):
    (tmp_path / "r.toml").write_bytes(b"\xff")
    assert "cannot be read as a recipe" in call("train", tmp_path / "r.toml").err
    assert call("train", tmp_path).err == f"saccade: {tmp_path}: is a folder; give a recipe file\n"


def test_run_as_recipe_is_refused_with_the_command_that_resumes_it(call: Call, tmp_path: Path):
    config = tmp_path / "config.toml"
    config.write_text("", "utf-8")
    message = f"{tmp_path}: is a folder; give a recipe file; to resume this run: `saccade train {config}"
    assert f"{message} --run {tmp_path}`" in call("train", tmp_path).err


def test_pyproject_is_not_suggested_as_a_recipe(call: Call, tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("", "utf-8")
    assert "pyproject.toml" not in call("train", tmp_path / "pyproject.tml").err
