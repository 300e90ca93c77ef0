"""A training on pairs from the cache has the bits, the messages and the errors of a training on pairs in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.errors import ConfigError, DataError, SaccadeError
from saccade.recipe import Recipe
from saccade.training import training_rows
from saccade.training.loop import train
from training.helpers import Contents, Recorder, train_run
from training.kill_driver import Driver, Job, stderr_of

RecipeOfFiles = Callable[..., Recipe]
ALWAYS, NEVER = 'data.cache="always"', 'data.cache="never"'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def without_config(contents: dict[str, Any]) -> dict[str, Any]:
    return {name: content for name, content in contents.items() if name != "config.toml"}


def entries(cache: Path) -> list[Path]:
    return [path for path in cache.glob("*") if (path / "manifest.json").exists()]


def test_cached_training_has_the_same_bits_and_messages(
    corpus: Path, cache: Path, tmp_path: Path, recipe_of_files: RecipeOfFiles, contents: Contents
) -> None:
    with (corpus / "train.en").open("a") as english, (corpus / "train.de").open("a") as german:
        english.write("a\rb\r\n\n" + "a " * 21 + "\n")
        german.write("b\na\nb\n")
    in_memory = train_run(recipe_of_files(corpus, NEVER, "data.skip_bad=true"), tmp_path / "memory")
    assert not cache.exists()
    mapped = train_run(recipe_of_files(corpus, ALWAYS, "data.skip_bad=true"), tmp_path / "cached")
    assert len(entries(cache)) == 2  # the tokenizer and the arrays
    assert without_config(contents(tmp_path / "cached")) == without_config(contents(tmp_path / "memory"))
    assert mapped.messages == in_memory.messages
    assert "1 with an empty side, 1 too long, 1 in bad rows" in mapped.messages[1]


def test_resume_from_the_cache_is_bit_exact(
    corpus: Path, cache: Path, tmp_path: Path, recipe_of_files: RecipeOfFiles, contents: Contents
) -> None:
    recipe = recipe_of_files(corpus, ALWAYS)
    train_run(recipe, tmp_path / "whole")
    train_run(recipe, tmp_path / "resumed", until=7)
    arrays = next(path for path in entries(cache) if (path / "source_ids").exists())
    (arrays / "source_ids").write_bytes(b"")
    resumed = train_run(recipe, tmp_path / "resumed")
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")
    assert any("source_ids" in message and "made again" in message for message in resumed.messages)


@pytest.fixture
def classification(tmp_path: Path, recipe_with: Callable[..., Recipe]) -> Callable[..., Recipe]:
    """`classification(*flags)`: a recipe that classifies labeled texts."""
    lines = "".join(f"{'ab'[n % 2]} {'abcdefg'[n % 7]} {'uvwxyz'[n % 6]} c\n" for n in range(40))
    for split in ("train", "dev", "test"):
        (tmp_path / split).write_text(lines, "utf-8")
    flags = [f'data.{split}={{kind="labeled", file="{split}"}}' for split in ("train", "dev", "test")]
    flags += [f'data.folder="{tmp_path}"', "task=classification", "train.updates=6", "train.average=0"]
    flags += [
        "model.block={self={heads=2}, feed_forward={inner=32}}",
        'model.decoder="none"',
        "model.head=linear",
        "train.best_by=loss",
    ]
    return lambda *more: recipe_with(*flags, *more)


def test_text_classification_from_the_cache_has_the_same_bits(
    tmp_path: Path, cache: Path, classification: Callable[..., Recipe], contents: Contents
) -> None:
    for name, cached in (("memory", NEVER), ("cached", ALWAYS)):
        train_run(classification(cached), tmp_path / name)
    assert len(entries(cache)) == 2
    assert without_config(contents(tmp_path / "cached")) == without_config(contents(tmp_path / "memory"))


@pytest.mark.parametrize("taken", ["both", "source", "none"])
def test_fine_tuning_from_the_cache_has_the_same_bits(
    taken: str, tmp_path: Path, cache: Path, classification: Callable[..., Recipe], contents: Contents
) -> None:
    train_run(classification(NEVER), tmp_path / "parent")
    start = (f'train.start_from="{tmp_path / "parent"}"', f'train.start_vocabulary="{taken}"')
    if taken != "both":  # with labels of its own
        text = (tmp_path / "train").read_text("utf-8").replace("a ", "new ")
        for split in ("train", "dev", "test"):
            (tmp_path / split).write_text(text, "utf-8")
    runs = {name: train_run(classification(*start, name), tmp_path / name[-6:]) for name in (NEVER, ALWAYS)}
    assert without_config(contents(tmp_path / ALWAYS[-6:])) == without_config(contents(tmp_path / NEVER[-6:]))
    assert runs[ALWAYS].messages == runs[NEVER].messages
    assert len(entries(cache)) == (1 if taken == "both" else 2)  # "both": no tokenizer is learned


def test_labels_that_the_parent_does_not_know_are_found_in_the_stream(
    tmp_path: Path, classification: Callable[..., Recipe]
) -> None:
    train_run(classification(NEVER), tmp_path / "parent")
    with (tmp_path / "train").open("a") as file:
        file.write("new a\n")
    start = f'train.start_from="{tmp_path / "parent"}"'
    messages = {message_of(classification(start, flag), tmp_path / "run") for flag in (ALWAYS, NEVER)}
    assert len(messages) == 1
    assert "has labels that" in messages.pop()


def message_of(recipe: Recipe, run: Path) -> str:
    with pytest.raises(SaccadeError) as error:
        train(recipe, run, Recorder())
    return str(error.value)


@pytest.mark.parametrize("content", [b"", b"a\r\nb\r\n", b"a\nb\n", b"\n" * 40, b"a\n" * 39 + b"a\0"])
def test_errors_are_those_of_the_in_memory_path(
    content: bytes, corpus: Path, tmp_path: Path, recipe_of_files: RecipeOfFiles
) -> None:
    (corpus / "train.en").write_bytes(content)
    messages = {message_of(recipe_of_files(corpus, flag), tmp_path / "run") for flag in (ALWAYS, NEVER)}
    assert len(messages) == 1


def test_locations_are_known_when_gradients_are_not_finite(
    corpus: Path, tmp_path: Path, recipe_of_files: RecipeOfFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.utils, "get_total_norm", lambda gradients: torch.tensor(float("nan")))
    messages = {message_of(recipe_of_files(corpus, flag), tmp_path / flag[-4:]) for flag in (ALWAYS, NEVER)}
    assert len(messages) == 1
    assert "train.en:" in messages.pop()


def test_auto_uses_the_cache_from_a_size_up(
    corpus: Path, cache: Path, tmp_path: Path, recipe_of_files: RecipeOfFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_run(recipe_of_files(corpus, "train.updates=1"), tmp_path / "small")
    assert not entries(cache)
    size = sum((corpus / f"train.{language}").stat().st_size for language in ("en", "de"))
    monkeypatch.setattr(training_rows, "CACHED_FROM_BYTES", size)
    train_run(recipe_of_files(corpus, "train.updates=1"), tmp_path / "large")
    assert len(entries(cache)) == 2


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ('data.train={kind="sort", rows=60}', "the source 'sort' does not read pairs"),
        ('task.guide={kind="head", attention="decoder.layers.0.cross", head=0}', "task.guide needs the words"),
    ],
)
def test_always_is_refused_with_the_reason(
    flag: str, reason: str, corpus: Path, tmp_path: Path, recipe_of_files: RecipeOfFiles
) -> None:
    with pytest.raises(ConfigError, match=rf"data\.cache: .*{reason}.*; set it to \"auto\""):
        train(recipe_of_files(corpus, ALWAYS, flag), tmp_path / "run", Recorder())


def test_data_error_leaves_nothing_in_the_cache(
    corpus: Path, cache: Path, tmp_path: Path, recipe_of_files: RecipeOfFiles
) -> None:
    (corpus / "train.de").write_bytes(b"a\n" * 39 + b"\xff\n")
    with pytest.raises(DataError, match=r"train\.de:40: byte 0xff"):
        train(recipe_of_files(corpus, ALWAYS), tmp_path / "run", Recorder())
    assert not [path for path in cache.iterdir() if path.name not in ("locks", "CACHEDIR.TAG")]


@pytest.mark.slow
def test_two_ranks_share_the_cache(
    corpus: Path, cache: Path, tmp_path: Path, drive: Driver, job: Callable[..., Job]
) -> None:
    splits = [f'data.{s}={{kind="pairs", src="{s}.en", tgt="{s}.de"}}' for s in ("train", "dev", "test")]
    flags = [f'data.folder="{corpus}"', *splits, "train.updates=12", ALWAYS]
    environment = {"SACCADE_CACHE": str(cache), "SACCADE_HEARTBEAT_TIMEOUT": "15"}
    makes = tmp_path / "makes"
    ranks = job(tmp_path / "run", flags, ranks=2, environment=environment, makes=str(makes))
    assert drive(ranks) == [0], stderr_of(tmp_path / "run")
    assert makes.read_text("utf-8") == "rank 0\n" * 2  # the tokenizer and the arrays
    assert len(entries(cache)) == 2
