"""Recipes and presets parse, and differ from each other only where they should; presets have their known sizes."""

from pathlib import Path

import pytest

from saccade.config import plain
from saccade.config_files import preset_names
from saccade.inputs import Tokens
from saccade.models.assemble import assemble
from saccade.recipe import read_recipe, recipe_of

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
LADDER = sorted((ROOT / "recipes" / "ladder").glob("*.toml"))
ALIGNMENT = sorted((ROOT / "recipes" / "alignment").glob("*.toml"))
TEACHERS = sorted((ROOT / "recipes" / "multi30k").glob("*.toml"))
TEXT = {"kind": "copy"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_parses_and_its_header_has_command_and_result(path: Path) -> None:
    assert read_recipe(str(path)).config
    header = path.read_text("utf-8").split("\n\n")[0]
    assert f"saccade train recipes/{path.name}" in header
    assert "BLEU" in header or "accuracy" in header, "the header has no result"


@pytest.mark.parametrize("path", LADDER, ids=lambda path: path.stem)
def test_ladder_recipes_differ_only_in_the_model(path: Path) -> None:
    base = plain(read_recipe(str(path.with_name("base.toml"))).config)
    recipe = plain(read_recipe(str(path)).config)
    assert {key for key in recipe if recipe[key] != base[key]} <= {"model"}
    assert recipe["model"]["dim"] == base["model"]["dim"]


@pytest.mark.parametrize("path", ALIGNMENT, ids=lambda path: path.stem)
def test_alignment_recipes_differ_only_in_direction_and_guide(path: Path) -> None:
    base, other = (plain(read_recipe(str(file)).config) for file in (path.with_name("en-fr.toml"), path))
    assert {key for key in other if other[key] != base[key]} <= {"data", "task"}
    assert (other["task"]["guide"]["kind"] == "head") == path.stem.endswith("guided")
    assert other["data"]["train"]["src"] == f"train.{path.stem[:2]}"


@pytest.mark.parametrize("path", TEACHERS, ids=lambda path: path.stem)
def test_multi30k_teachers_are_trained_on_original_text(path: Path) -> None:
    data = read_recipe(str(path)).config.data
    languages = {"forward": ("en", "de"), "backward": ("de", "en")}[path.stem]
    for split, name in (("train", "train"), ("dev", "val"), ("test", "test_2016_flickr")):
        options = getattr(data, split).options
        assert (options["src"], options["tgt"]) == tuple(f"{name}.lc.norm.tok.{language}.gz" for language in languages)
    assert path.relative_to(ROOT).as_posix() in (ROOT / "recipes" / "multi30k-en-de.toml").read_text("utf-8")


def test_activity_recipe_has_no_person_in_two_splits() -> None:
    data = read_recipe(str(ROOT / "recipes" / "activity-gru.toml")).config.data
    people = [person for split in (data.train, data.dev, data.test) for person in split.options["groups"]]
    assert len(people) == len(set(people)) == 20


def test_demo_preset_is_a_complete_recipe() -> None:
    assert read_recipe("demo").config.data.train.kind == "dates"


@pytest.mark.parametrize(
    ("name", "layers", "dim", "heads", "inner", "parameters"),
    [
        ("transformer-tiny", 4, 128, 4, 256, 2_349_568),
        ("transformer-small", 3, 256, 4, 1024, 7_578_624),
        ("transformer-base", 6, 512, 8, 2048, 48_236_544),
        ("transformer-big", 6, 1024, 16, 4096, 184_553_472),
    ],
)
def test_preset_has_its_documented_size(
    name: str, layers: int, dim: int, heads: int, inner: int, parameters: int
) -> None:
    model = recipe_of({"extends": name, "data": {"train": TEXT, "dev": TEXT}}).model
    assert model.dim == dim
    assert model.decoder.options["block"].options["cross"].options["heads"] == heads
    for side in (model.encoder, model.decoder):
        block = side.options["block"].options
        assert side.options["depth"] == layers
        assert block["self"].options["heads"] == heads
        assert block["feed_forward"].options["inner"] == inner
    if dim <= 512:  # initializing the big preset takes seconds
        assembled = assemble(model, Tokens(8000), 8000)
        assert sum(p.numel() for p in assembled.parameters()) == parameters


def test_presets_are_demo_four_transformer_sizes_and_a_decoder() -> None:
    sizes = {f"transformer-{size}" for size in ("tiny", "small", "base", "big")}
    assert set(preset_names()) == {"demo", "decoder-only-tiny", *sizes}
