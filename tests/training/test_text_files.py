"""A run resumes only with unchanged text files; bad rows stop a training, or are counted and left out."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import saccade
from saccade.errors import RunError
from saccade.recipe import Recipe
from saccade.training.loop import train
from training.helpers import Contents, Recorder, train_run


@pytest.mark.parametrize(("split", "side"), [("train", "src"), ("train", "tgt"), ("dev", "src"), ("test", "tgt")])
def test_changed_text_file_is_refused(
    split: str, side: str, corpus: Path, tmp_path: Path, recipe_of_files: Callable[..., Recipe]
):
    recipe = recipe_of_files(corpus)
    train_run(recipe, tmp_path / "run", until=7)
    path = corpus / f"{split}.{'en' if side == 'src' else 'de'}"
    text = path.read_text("utf-8")
    path.write_text(text.replace("c", "d", 1), "utf-8")
    for allow_change in (False, True):
        with pytest.raises(RunError, match=rf"\n  data\.{split}\.{side}: the file has changed"):
            train(recipe, tmp_path / "run", Recorder(), allow_change=allow_change)
    with pytest.raises(RunError, match=r"restore the old files, or train a new run"):
        train(recipe, tmp_path / "run", Recorder())
    path.write_text(text, "utf-8")
    train_run(recipe, tmp_path / "run")


def test_text_files_may_move_to_another_folder(
    corpus: Path, tmp_path: Path, recipe_of_files: Callable[..., Recipe], contents: Contents
):
    train_run(recipe_of_files(corpus), tmp_path / "unmoved")
    train_run(recipe_of_files(corpus), tmp_path / "moved", until=7)
    new_folder = corpus.rename(tmp_path / "elsewhere")
    train_run(recipe_of_files(new_folder), tmp_path / "moved")
    unmoved, moved = contents(tmp_path / "unmoved"), contents(tmp_path / "moved")
    assert unmoved.pop("config.toml") != moved.pop("config.toml")  # it contains the new folder
    assert unmoved == moved


def test_bad_lines_are_listed_before_training_starts(
    corpus: Path, tmp_path: Path, recipe_of_files: Callable[..., Recipe]
):
    with (corpus / "train.en").open("ab") as file:
        file.write(b"a b\r\nc \xff\n")
    with (corpus / "train.de").open("ab") as file:
        file.write(b"a b\nc d\n")
    with pytest.raises(saccade.DataError) as error:
        train(recipe_of_files(corpus), tmp_path / "run", Recorder())
    assert "train.en:41: the line ends in CRLF" in str(error.value)
    assert "train.en:42: byte 0xff" in str(error.value)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_skip_bad_leaves_out_and_counts_bad_lines(corpus: Path, tmp_path: Path, recipe_of_files: Callable[..., Recipe]):
    for name, lines in (
        ("train.en", b"a b\r\nc \xff\nx\n\n"),
        ("train.de", b"a b\nc d\nx\nb\n"),
        ("dev.de", b"z\n"),
    ):
        with (corpus / name).open("ab") as file:
            file.write(lines)
    report = train_run(recipe_of_files(corpus, "data.skip_bad=true", "data.longest=4"), tmp_path / "run")
    summary = next(text for text in report.messages if "to train on" in text)
    assert "1 with an empty side" in summary
    assert "2 in bad rows), 6 to validate on (left out: 1 in bad rows)" in summary
    kept, too_long = (int(n) for n in re.match(r"(\d+) pairs .* (\d+) too long", summary).groups())  # type: ignore[union-attr]
    assert too_long > 0
    assert kept + too_long + 1 == 42
