"""A full disk or a failed write ends the training with one message and leaves the last checkpoint intact."""

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

import saccade
from saccade.cli import main
from saccade.errors import RunError
from saccade.recipe import Recipe
from saccade.runs import files, weights
from saccade.training import loop
from saccade.training.loop import train
from training.helpers import Contents, Recorder, checkpoint, saved_steps, train_run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount_point)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=True)


def fill_disk(disk: Path, free: int) -> Path:
    """Fill a disk until `free` bytes are left. Returns the file that takes the space."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - free)))
    return ballast


def fill_before(patch: pytest.MonkeyPatch, step: int, disk: Path, free: int) -> None:
    apply_update = loop.update

    def update(job: Any, state: Any, batches: Any) -> None:
        if state.step + 1 == step:
            fill_disk(disk, free)
        apply_update(job, state, batches)

    patch.setattr(loop, "update", update)


def check_intact(run: Path, last: int) -> None:
    """Check that the last checkpoint is complete and loads, and that no temporary files are left."""
    assert max(saved_steps(run)) == last
    files.verify(checkpoint(run, last))
    assert saccade.load(run, "latest").checkpoint == checkpoint(run, last)
    assert len(saccade.load(run, "latest").translate(["b a"])) == 1
    assert list(run.rglob(".*")) == []


def missing_bytes(text: str) -> int:
    match = re.search(r"needs ([\d,]+) bytes, ([\d,]+) are free, ([\d,]+) are missing", text)
    assert match, text
    needed, free, missing = (int(number.replace(",", "")) for number in match.groups())
    assert missing == needed - free
    return missing


def test_full_disk_error_names_the_missing_bytes(
    small_disk: Path, recipe: Recipe, finished_run: Path, monkeypatch: pytest.MonkeyPatch, contents: Contents
):
    run = small_disk / "run"
    with pytest.MonkeyPatch.context() as patch:
        fill_before(patch, 17, small_disk, 500_000)
        with pytest.raises(RunError, match="the disk is full") as error:
            train(recipe, run, Recorder())
    check_intact(run, 12)
    missing = missing_bytes(str(error.value))
    assert 400_000 < missing < 1_500_000
    assert "; free some space and run the same command again; earlier checkpoints are intact" in str(error.value)
    (small_disk / "ballast").unlink()
    report = train_run(recipe, run)
    assert "resuming from step 12" in report.messages
    assert contents(run) == contents(finished_run)


def test_disk_that_fills_up_during_a_save_leaves_the_last_checkpoint(
    small_disk: Path, recipe: Recipe, finished_run: Path, contents: Contents
):
    run = small_disk / "run"
    with pytest.MonkeyPatch.context() as patch:
        fill_before(patch, 17, small_disk, 30_000)
        patch.setattr(files, "_check_free_space", lambda folder, needed: None)  # the disk seemed to have enough space
        with pytest.raises(RunError, match="the disk is full") as error:
            train(recipe, run, Recorder())
    assert missing_bytes(str(error.value)) > 0
    check_intact(run, 12)
    (small_disk / "ballast").unlink()
    train_run(recipe, run)
    assert contents(run) == contents(finished_run)


def test_disk_without_a_single_free_byte_is_reported(small_disk: Path, recipe: Recipe):
    run = small_disk / "run"
    with pytest.MonkeyPatch.context() as patch:
        apply_update = loop.update

        def update(job: Any, state: Any, batches: Any) -> None:
            if state.step == 12:
                # fill the last page of the file, so that the next line needs another page
                (run / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes().ljust(4096 * 2, b"\n"))
                fill_disk(small_disk, 0)
            apply_update(job, state, batches)

        patch.setattr(loop, "update", update)
        with pytest.raises(RunError, match="the disk is full"):
            train(recipe, run, Recorder())


def test_free_space_is_checked_before_writing(
    run: Path, recipe: Recipe, finished_run: Path, monkeypatch: pytest.MonkeyPatch, contents: Contents
):
    """The free space is simulated, so this test also runs where no disk can be mounted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 7, 7))  # type: ignore[attr-defined]
        with pytest.raises(RunError, match="the disk is full") as error:
            train(recipe, run, Recorder())
    assert missing_bytes(str(error.value)) > 1_000_000
    check_intact(run, 18)
    train_run(recipe, run)
    assert contents(run) == contents(finished_run)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
            "disk is full",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "disk is full"),
        (OSError(errno.EIO, "Input/output error"), "cannot be written: Input/output error"),
        (SafetensorError("something else"), "cannot be written: something else"),
    ],
    ids=["full", "quota", "input/output error", "unknown"],
)
def test_failed_write_leaves_the_last_checkpoint(
    error: Exception, message: str, run: Path, recipe: Recipe, finished_run: Path, contents: Contents
):
    write_tensors, calls = weights.save_file, []

    def save_file(tensors: Any, path: Path) -> None:
        calls.append(path)
        write_tensors(tensors, path)
        if len(calls) == 2:  # training.safetensors
            os.truncate(path, 100)
            raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "save_file", save_file)
        with pytest.raises(RunError, match=message) as raised:
            train(recipe, run, Recorder())
    assert "\n" not in str(raised.value)
    check_intact(run, 18)
    train_run(recipe, run)
    assert contents(run) == contents(finished_run)


@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
def test_read_only_folder_is_refused_before_training(
    exists: bool, tmp_path: Path, crashed_run: Path, recipe_file: Path, capsys: pytest.CaptureFixture[str]
):
    mount_point = tmp_path / "mount_point"
    mount_point.mkdir()
    tmpfs = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount_point)]
    mounted = os.getuid() == 0 and subprocess.run(tmpfs, capture_output=True).returncode == 0
    if os.getuid() == 0 and not mounted:
        pytest.skip("root can write everywhere, and no disk could be mounted read-only")
    try:
        if exists:
            shutil.copytree(crashed_run, mount_point / "run")
        if mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(mount_point)], check=True)
        else:
            for path in [mount_point, *mount_point.rglob("*")]:
                path.chmod(0o555 if path.is_dir() else 0o444)
        assert main(["train", str(recipe_file), "--run", str(mount_point / "run")]) == 1
    finally:
        if mounted:
            subprocess.run(["umount", str(mount_point)], check=True)
        else:
            for path in [mount_point, *mount_point.rglob("*")]:
                path.chmod(0o755)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        rf"saccade: {mount_point / 'run'}(/lock)?: cannot be written: (Read-only file system|Permission denied)\n", err
    )


def test_run_path_below_a_file_is_refused_before_training(tmp_path: Path, recipe: Recipe):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written: Not a directory"):
        train(recipe, tmp_path / "file" / "run", Recorder())
