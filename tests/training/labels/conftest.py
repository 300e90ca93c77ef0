"""One trained run for each kind of labeled data."""

from pathlib import Path

import pytest

from saccade.recipe import Recipe
from saccade.training.loop import train
from saccade.training.progress import Silent
from training.labels.labeled_data import KINDS, recipe_for


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def recipe(kind: str, folder: Path) -> Recipe:
    (folder / f"labels-{kind}").mkdir(exist_ok=True)  # pytest rebuilds session fixtures when their parameter changes
    return recipe_for(folder / f"labels-{kind}", kind)


@pytest.fixture(scope="session")
def trained_run(recipe: Recipe, kind: str, folder: Path) -> Path:
    return train(recipe, folder / f"labels-{kind}-run", Silent()).path
