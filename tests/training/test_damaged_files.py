"""Damaged checkpoints are set aside and the newest undamaged one is used; other damaged files are named."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from saccade.api import load
from saccade.cli import main
from saccade.errors import RunError
from saccade.recipe import Recipe
from saccade.runs import files
from saccade.training.loop import train
from training.helpers import CHECKPOINT_FILES, Contents, Recorder, checkpoint, flip_bit, saved_steps, train_run


def flip_checksum(path: Path) -> None:
    """Flip a bit of a checksum in a manifest. Most other bits of a manifest have no effect on what is loaded."""
    flip_bit(path, 8 * (path.read_bytes().index(b'"sha256": "') + 13))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip_bit,
    "a flipped first bit": lambda path: flip_bit(path, 0),
    "a missing second half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a missing last byte": lambda path: os.truncate(path, path.stat().st_size - 1),
    "no content": lambda path: os.truncate(path, 0),
    "only zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "an additional byte": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a deleted file": Path.unlink,
    "a folder in place of the file": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", CHECKPOINT_FILES)
def test_damaged_checkpoint_is_set_aside_and_the_previous_one_is_used(
    name: str, damage: str, run: Path, recipe: Recipe, finished_run: Path, contents: Contents
):
    damaged = checkpoint(run, 18) / name
    (flip_checksum if (name, damage) == ("manifest.json", "a flipped bit") else DAMAGES[damage])(damaged)
    if (name, damage) in {("manifest.json", "a missing last byte")}:
        os.truncate(damaged, damaged.stat().st_size - 1)  # without its newline a manifest is still valid
    content = damaged.read_bytes() if damaged.is_file() else None
    report = train_run(recipe, run)
    assert len(report.warnings) == 1
    assert "step-0000018" in report.warnings[0]
    assert "skipped, kept as damaged-step-0000018" in report.warnings[0]
    if not (name == "manifest.json" or damage == "a folder in place of the file"):
        assert str(damaged) in report.warnings[0]
    assert "resuming from step 12" in report.messages
    set_aside = run / "checkpoints" / "damaged-step-0000018" / name
    assert (set_aside.read_bytes() if set_aside.is_file() else None) == content
    assert contents(run) == contents(finished_run)


def test_all_damaged_checkpoints_are_skipped(run: Path, recipe: Recipe, finished_run: Path, contents: Contents):
    for number in (12, 18):
        flip_bit(checkpoint(run, number) / "weights.safetensors")
    report = train_run(recipe, run)
    assert len(report.warnings) == 2
    assert "resuming from step 6" in report.messages
    assert contents(run) == contents(finished_run)


def test_training_starts_anew_if_all_checkpoints_are_damaged(
    run: Path, recipe: Recipe, finished_run: Path, contents: Contents
):
    for number in saved_steps(run):
        shutil.rmtree(checkpoint(run, number))
        checkpoint(run, number).mkdir()
    report = train_run(recipe, run)
    assert len(report.warnings) == 3
    assert not [text for text in report.messages if text.startswith("resuming")]
    assert contents(run) == contents(finished_run)
    set_aside = sorted(path.name for path in (run / "checkpoints").glob("damaged-*"))
    assert set_aside == ["damaged-step-0000006", "damaged-step-0000012", "damaged-step-0000018"]


def test_checkpoint_damaged_twice_is_set_aside_under_two_names(run: Path, recipe: Recipe):
    flip_bit(checkpoint(run, 18) / "state.json")
    train_run(recipe, run, until=19)
    flip_bit(checkpoint(run, 18) / "training.safetensors")
    report = train_run(recipe, run)
    assert "kept as damaged-step-0000018-1" in report.warnings[0]


def test_damaged_older_checkpoint_causes_only_a_warning(run: Path, recipe: Recipe):
    flip_bit(checkpoint(run, 12) / "weights.safetensors")
    report = train_run(recipe, run)
    assert [text for text in report.warnings if "step-0000012" in text]


def test_flipped_manifest_bit_is_refused_or_has_no_effect(run: Path, recipe: Recipe):
    path = checkpoint(run, 18) / "manifest.json"
    listed = json.loads(path.read_bytes())["files"]
    accepted = 0
    for byte in range(path.stat().st_size):
        flip_bit(path, 8 * byte + byte % 7)
        with contextlib.suppress(RunError):
            assert files.verify(path.parent)["files"] == listed
            accepted += 1
        flip_bit(path, 8 * byte + byte % 7)
    assert files.verify(path.parent)["files"] == listed
    assert accepted < path.stat().st_size / 2


@pytest.mark.parametrize("name", ["joint.model", "manifest.json"])
@pytest.mark.parametrize(
    "damage", ["a flipped bit", "a missing second half", "no content", "only zeros", "a deleted file"]
)
def test_error_names_the_tokenizer_with_a_damaged_file(
    damage: str, name: str, run: Path, recipe_file: Path, capsys: pytest.CaptureFixture[str]
):
    damaged = run / "codecs" / name
    (flip_checksum if (name, damage) == ("manifest.json", "a flipped bit") else DAMAGES[damage])(damaged)
    for command in (["train", str(recipe_file), "--run", str(run)], ["view", str(run), "a b"]):
        assert main(command) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert str(run / "codecs") in err
        assert "Traceback" not in err
    assert saved_steps(run) == [6, 12, 18]


@pytest.mark.parametrize("name", ["config.toml", "data.json"])
@pytest.mark.parametrize("damage", ["a missing second half", "only zeros", "no content"])
def test_error_names_the_run_with_a_damaged_config_or_damaged_data_checksums(
    damage: str, name: str, run: Path, recipe: Recipe
):
    DAMAGES[damage](run / name)
    if (name, damage) == ("config.toml", "a missing second half"):  # TOML that ends with a whole line is valid
        text = (run / name).read_bytes()
        os.truncate(run / name, text.rindex(b"=") + 1)
    with pytest.raises(RunError, match=rf"{re.escape(str(run))}[\s\S]*; restore the file from a copy of the run"):
        train(recipe, run, Recorder())


def test_error_of_a_damaged_checkpoint_names_the_others(run: Path):
    flip_bit(checkpoint(run, 18) / "weights.safetensors")
    with pytest.raises(RunError, match=r"checksum mismatch.*checkpoint=NAME\): step-0000006, step-0000012$"):
        _ = load(run, "step-18").model
    for step in (6, 12):
        shutil.rmtree(checkpoint(run, step))
    with pytest.raises(RunError, match=r"checksum mismatch.*no other checkpoint: restore the file from a copy"):
        _ = load(run, "step-18").model


def test_checkpoint_without_training_state_is_refused_with_the_remedy(run: Path, recipe: Recipe):
    manifest = checkpoint(run, 18) / "manifest.json"
    facts = json.loads(manifest.read_bytes())
    del facts["files"]["training.safetensors"]
    manifest.write_text(json.dumps(facts), "utf-8")
    with pytest.raises(RunError, match=r"does not list training\.safetensors; delete this checkpoint folder"):
        train(recipe, run, Recorder())


def test_file_that_cannot_be_read_is_not_called_damaged(tmp_path: Path):
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(RunError, match=r"manifest\.json: cannot be read: Is a directory"):
        files.verify(tmp_path)


def test_deleted_metrics_are_not_padded_with_zeros(run: Path, recipe: Recipe):
    (run / "metrics.jsonl").unlink()
    train_run(recipe, run)
    assert b"\0" not in (run / "metrics.jsonl").read_bytes()
