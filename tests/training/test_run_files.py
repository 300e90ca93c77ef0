"""The files of a run: their permissions, and no pickle."""

import json
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import saccade
from saccade.recipe import Recipe
from training.helpers import train_run


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o000, 0o666)])
def test_file_permissions_respect_the_umask(mask: int, mode: int, tmp_path: Path, recipe_with: Callable[..., Recipe]):
    before = os.umask(mask)
    try:
        train_run(recipe_with("train.updates=4", "train.validate_every=2", "train.average=2"), tmp_path / "run")
        assert os.umask(mask) == mask  # training did not change it
    finally:
        os.umask(before)
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {path.name for path in written} >= {
        "weights.safetensors",
        "manifest.json",
        "joint.model",
        "config.toml",
    }
    assert [(path, oct(m)) for path in written if (m := stat.S_IMODE(path.stat().st_mode)) != mode] == []


def test_run_contains_no_pickle(finished_run: Path):
    written = [path for path in finished_run.rglob("*") if path.is_file()]
    suffixes = {path.suffix for path in written}
    assert suffixes == {"", ".json", ".jsonl", ".model", ".safetensors", ".toml"}
    for path in written:
        data = path.read_bytes()
        assert not data.startswith((b"\x80", b"PK")), path  # pickle, and the zip archive of torch.save
        if path.suffix == ".safetensors":
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            assert {entry["dtype"] for name, entry in header.items() if name != "__metadata__"} <= {
                "F32",
                "U8",
            }
        else:
            data.decode()  # plain text


def test_loading_a_run_does_not_unpickle(finished_run: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("unpickled")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(owner, name, refuse)
    assert len(saccade.load(finished_run).translate(["b a c"])) == 1
