"""`--dry-run` estimates the cost of a training and writes nothing but the cache of a large text."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from saccade.cli import main
from saccade.errors import RunError
from saccade.recipe import Recipe
from saccade.runs import weights
from saccade.training.dry_run import dry_run
from training.helpers import CHECKPOINT_FILES, Contents, Recorder, checkpoint


def test_dry_run_prints_the_cost_and_writes_nothing(
    tmp_path: Path,
    recipe_file: Path,
    finished_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(recipe_file), "--dry-run"]) == 0
    out, _ = capsys.readouterr()
    estimate = {line[:17].strip(): line[17:] for line in out.splitlines()}
    parameters = sum(
        tensor.numel() for tensor in load_file(checkpoint(finished_run, 24) / "weights.safetensors").values()
    )
    assert estimate["parameters"] == f"{parameters:,}"
    assert re.fullmatch(r"[\d,]+ MB, with the largest batch", estimate["peak memory"])
    assert re.match(r"\d+:\d\d", estimate["time per epoch"])
    assert re.match(r"\d+:\d\d to the last update", estimate["whole training"])
    bytes_each = (
        sum((checkpoint(finished_run, 24) / name).stat().st_size for name in CHECKPOINT_FILES) + weights.METADATA_BYTES
    )
    disk = re.fullmatch(r"([\d,]+) MB in 5 checkpoints", estimate["disk"])
    assert disk
    assert float(disk[1]) == pytest.approx(5 * bytes_each / 1e6, abs=0.6)
    assert list(tmp_path.iterdir()) == []


def test_dry_run_does_not_use_the_run_folder_as_cache(
    corpus: Path, tmp_path: Path, recipe_of_files: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
):
    recipe = recipe_of_files(corpus, 'data.cache="always"')
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.delenv("SACCADE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(RunError, match=r"needs a cache, but .* cannot be made .*; set SACCADE_CACHE to a folder"):
        dry_run(recipe, tmp_path / "run", Recorder())
    assert not (tmp_path / "run").exists()
    dry_run(recipe_of_files(corpus), tmp_path / "run", Recorder())  # a small text needs no cache
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    dry_run(recipe, tmp_path / "run", Recorder())
    assert not (tmp_path / "run").exists()
    assert (tmp_path / "cache").exists()


def test_dry_run_of_an_existing_run_does_not_change_it(run: Path, recipe: Recipe, contents: Contents):
    before = contents(run)
    cost = dry_run(recipe, run, Recorder())
    assert cost.epoch_seconds > 0
    assert contents(run) == before
