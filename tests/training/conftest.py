"""A training small enough to be run hundreds of times, yet with everything that resuming must bring back."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch

# Dropout everywhere, several batches an update, intervals of the log that straddle checkpoints, old checkpoints
# that are pruned, an average at the end.
RECIPE = """
seed = 3

[data]
train = { kind = "sort", rows = 60, shortest = 2, longest = 6, symbols = 8 }
dev = { kind = "sort", rows = 4, shortest = 2, longest = 6, symbols = 8, split = "dev" }
tokenizer = "words"
longest = 20

[model]
dim = 16
dropout = { attention = 0.2, residual = 0.2, feed_forward = 0.2, embedding = 0.2 }
block.self.heads = 2
block.cross.heads = 2
block.feed_forward.inner = 32
encoder.depth = 1
decoder.depth = 1

[train]
updates = 24
batch_tokens = 32
update_tokens = 48
schedule = { kind = "inverse_root", rate = 0.01, warmup = 4 }
log_every = 4
validate_every = 6
validation = { search = "greedy", batch_tokens = 8 }
best_by = "loss"
keep = 2
average = 3
"""

# Every checkpoint is synced to the disk again and again; in memory that costs nothing, and a kill finds the same files.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

Outcome = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="session")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(RECIPE, "utf-8")
    return path


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="saccade-", dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="saccade-", dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture(scope="module", autouse=True)
def at_full_speed() -> Iterator[None]:
    """One thread, on which bits depend; and no checks of shapes, which other tests make."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
    torch.set_num_threads(before)


def outcome_of(run: Path) -> dict[str, Any]:
    """All that a run folder holds, times of the clock and damaged checkpoints aside: file → checksum or content."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in run.rglob("*") if p.is_file()):
        name = path.relative_to(run).as_posix()
        if name in ("lock", "timing.jsonl", "report.html") or "/damaged-" in name:
            continue
        if path.name == "state.json":
            found[name] = {key: value for key, value in json.loads(path.read_bytes()).items() if key != "seconds"}
        elif path.name == "manifest.json":
            manifest = json.loads(path.read_bytes())
            manifest["files"].pop("state.json", None)
            found[name] = manifest
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture(scope="session")
def outcome() -> Outcome:
    return outcome_of
