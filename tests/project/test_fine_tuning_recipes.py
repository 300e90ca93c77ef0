"""The fine-tuning recipes are comparable, and the held-out Tatoeba sentences do not occur in the training text."""

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from saccade.config import leaves, plain
from saccade.recipe import read_recipe

RECIPES = Path(__file__).parents[2] / "recipes"


def settings(name: str) -> dict[str, object]:
    return leaves(plain(read_recipe(str(RECIPES / name)).config))


def differing(first: str, second: str) -> set[str]:
    old, new = settings(first), settings(second)
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


def test_recipes_differ_only_in_the_data_and_the_start() -> None:
    scratch = differing("tatoeba-en-de.toml", "fine-tuning/multi30k.toml")
    assert {key.split(".")[0] for key in scratch} == {"data"}
    assert not [key for key in scratch if key.startswith("data.tokenizer")]
    tuned = differing("fine-tuning/multi30k.toml", "fine-tuning/tuned.toml")
    assert tuned == {"train.start_from", "train.start_checkpoint", "train.updates"}


def test_updates_of_parent_and_child_add_up_to_those_of_a_training_alone() -> None:
    tuned = settings("fine-tuning/tuned.toml")
    parent = int(str(tuned["train.start_checkpoint"]).removeprefix("step-"))
    assert parent + int(str(tuned["train.updates"])) == settings("fine-tuning/multi30k.toml")["train.updates"] == 4000


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", RECIPES / "fine-tuning" / "prepare.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_held_out_sentences_do_not_occur_in_the_training_text(prepare: ModuleType, tmp_path: Path) -> None:
    lines = [f"Sentence {n % 1500}{'!' * (n % 2)}\tSatz {n}\tCC-BY" for n in range(3000)]
    lines += [line.upper() for line in lines[:100]] + lines[:100]
    (tmp_path / "tatoeba").mkdir()
    with zipfile.ZipFile(tmp_path / "tatoeba" / "deu-eng.zip", "w") as archive:
        archive.writestr("deu.txt", "".join(f"{line}\n" for line in lines))
    for out in ("first", "second"):
        prepare.main(tmp_path, tmp_path / out)
    read = {name: (tmp_path / "first" / name).read_text("utf-8") for name in ("train.tsv", "dev.tsv")}
    assert read == {name: (tmp_path / "second" / name).read_text("utf-8") for name in read}
    train, dev = ([line.split("\t") for line in text.splitlines()] for text in read.values())
    assert len(dev) == prepare.DEV_PAIRS
    assert not {english.lower() for english, _ in train} & {english.lower() for english, _ in dev}
    assert len({(english, german) for english, german in train}) == len(train) > 1000
