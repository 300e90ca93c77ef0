"""Recipes and presets parse; presets are the sizes they say."""

from pathlib import Path

import pytest

from saccade.config import preset_names
from saccade.models.assemble import assemble
from saccade.recipe import read_recipe, recipe_of

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
TEXT = {"kind": "copy"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_parses_and_its_header_says_how_to_run_it(path: Path) -> None:
    assert read_recipe(str(path)).config
    header = path.read_text("utf-8").split("\n\n")[0]
    assert "saccade train" in header
    assert "BLEU" in header


def test_demo_is_a_whole_recipe() -> None:
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
def test_preset_is_the_size_it_says(name: str, layers: int, dim: int, heads: int, inner: int, parameters: int) -> None:
    model = recipe_of({"extends": name, "data": {"train": TEXT, "dev": TEXT}}).model
    assert model.dim == dim
    for side in (model.encoder, model.decoder):
        block = side.options["block"].options
        assert side.options["depth"] == layers
        assert block["self"].options["heads"] == block["memory"].options["heads"] == heads
        assert block["feed_forward"].options["inner"] == inner
    if dim <= 512:  # big takes seconds to draw
        built = assemble(model, 8000, 8000)
        assert sum(p.numel() for p in built.parameters()) == parameters


def test_every_preset_is_known() -> None:
    sizes = {f"transformer-{size}" for size in ("tiny", "small", "base", "big")}
    assert set(preset_names()) == {"demo", *sizes}
