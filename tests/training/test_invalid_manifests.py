"""Manifests and checkpoint names that point to other files are refused."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade.errors import RunError
from saccade.runs import files
from saccade.runs.folder import RunFolder
from training.helpers import checkpoint, edit_manifest, flip_bit


@pytest.mark.parametrize("name", ["../step-0000012/state.json", "a/../../step-0000012/state.json", "/etc/hostname"])
def test_manifest_with_a_path_outside_its_folder_is_refused(name: str, run: Path):
    folder = checkpoint(run, 18)
    target = folder / name
    entry = {"bytes": target.stat().st_size, "sha256": files.sha256(target)} if target.exists() else {}
    edit_manifest(folder, lambda manifest: manifest["files"].update({name: entry}))
    with pytest.raises(RunError, match="points outside its folder"):
        files.verify(folder)


def test_symbolic_link_to_a_file_is_refused(run: Path):
    weights = checkpoint(run, 18) / "weights.safetensors"
    weights.rename(run / "elsewhere")
    weights.symlink_to(run / "elsewhere")
    with pytest.raises(RunError, match="points outside its folder"):
        files.verify(checkpoint(run, 18))


def test_symbolic_link_to_a_folder_is_refused(run: Path):
    folder, outside = checkpoint(run, 18), run / "outside"
    outside.mkdir()
    shutil.copy(folder / "state.json", outside)
    (folder / "inner").symlink_to(outside)
    edit_manifest(
        folder,
        lambda manifest: manifest["files"].update({"inner/state.json": manifest["files"]["state.json"]}),
    )
    with pytest.raises(RunError, match="points outside its folder"):
        files.verify(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["files"]["weights.safetensors"].update(bytes=1),
        lambda manifest: manifest["files"]["weights.safetensors"].update(sha256="0" * 64),
        lambda manifest: manifest["files"]["weights.safetensors"].pop("sha256"),
        lambda manifest: manifest["files"].update({"weights.safetensors": None}),
        lambda manifest: manifest["files"].update({"more.safetensors": {"bytes": 0, "sha256": ""}}),
        lambda manifest: manifest.pop("files"),
        lambda manifest: manifest.update(files=["weights.safetensors"]),
        lambda manifest: manifest.update(format=99),
    ],
    ids=[
        "size",
        "checksum",
        "no checksum",
        "null for a file",
        "an additional file",
        "missing list of files",
        "files as an array",
        "the format",
    ],
)
def test_weights_with_an_inconsistent_manifest_are_not_loaded(change: Callable[[Any], object], run: Path):
    edit_manifest(checkpoint(run, 18), change)
    with pytest.raises(RunError, match="step-0000018"):
        _ = saccade.load(run, "latest").model


def test_weights_that_the_manifest_does_not_list_are_not_loaded(run: Path):
    edit_manifest(checkpoint(run, 18), lambda manifest: manifest["files"].pop("weights.safetensors"))
    flip_bit(checkpoint(run, 18) / "weights.safetensors")
    with pytest.raises(RunError):
        _ = saccade.load(run, "latest").model


@pytest.mark.parametrize("name", ["../checkpoints/step-0000018", "..", "/tmp", "step-0000099", "bset"])
def test_checkpoint_names_cannot_leave_the_run(name: str, run: Path):
    with pytest.raises(RunError, match=r"there is no checkpoint .*available: best, latest, step-0000006.*\); choose"):
        saccade.load(run, name)


@pytest.mark.parametrize("name", ["auto", "best", "step-6"])
def test_run_without_a_checkpoint_is_refused_with_what_to_do(name: str, run: Path):
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(RunError, match=f"^{re.escape(str(run))}: has no checkpoint yet; wait for .* `saccade train`$"):
        saccade.load(run, name)


@pytest.mark.parametrize("content", ["../../elsewhere", "/etc", "step-0000099", "", "\udcff"])
def test_latest_is_ignored_unless_it_names_an_existing_checkpoint(content: str, run: Path):
    (run / "latest").write_bytes(content.encode(errors="surrogateescape"))
    assert RunFolder(run).checkpoints.marked("latest") is None


def test_checkpoint_name_needs_no_leading_zeros(run: Path):
    assert saccade.load(run, "step-12").checkpoint.name == "step-0000012"
