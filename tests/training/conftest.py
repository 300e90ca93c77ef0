"""A training small enough to run hundreds of times that still exercises everything a resume must restore."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import jaxtyping
import pytest
import torch

from saccade.recipe import Recipe, read_recipe
from training.helpers import Contents, run_contents, saved_steps, train_run
from training.kill_driver import ENVIRONMENT, Driver, Job, SameContents, training_job

# Dropout everywhere, masked source tokens, several batches per update, log intervals that span checkpoints, pruning of
# old checkpoints, and an average at the end.
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

[task]
kind = "translation"
mask_sources = 0.2

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

# Checkpoints are synced to the disk very often. In memory that costs nothing, and after a kill the files are the same.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture(scope="session")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(RECIPE, "utf-8")
    return path


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder in memory for the runs that tests share."""
    with tempfile.TemporaryDirectory(prefix="saccade-", dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="saccade-", dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture(scope="module", autouse=True)
def one_thread_without_shape_checks() -> Iterator[None]:
    """One thread, because the bits of the result depend on the number; no shape checks, which other tests make."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def contents() -> Contents:
    return run_contents


@pytest.fixture(scope="session")
def recipe(recipe_file: Path) -> Recipe:
    return read_recipe(str(recipe_file)).config


@pytest.fixture
def recipe_with(recipe_file: Path) -> Callable[..., Recipe]:
    """`recipe_with("train.updates=6")`: the recipe with `--set` flags."""
    return lambda *flags: read_recipe(str(recipe_file), flags).config


@pytest.fixture(scope="session")
def finished_run(recipe: Recipe, folder: Path) -> Path:
    """A run that was trained without interruption."""
    run = folder / "in-process"
    train_run(recipe, run)
    return run


@pytest.fixture(scope="session")
def crashed_run(recipe: Recipe, folder: Path) -> Path:
    """A run that crashed after step 19, with checkpoints of steps 6, 12 and 18."""
    run = folder / "crashed-in-process"
    train_run(recipe, run, until=19)
    assert saved_steps(run) == [6, 12, 18]
    return run


@pytest.fixture
def run(crashed_run: Path, tmp_path: Path) -> Path:
    """A copy of the crashed run."""
    shutil.copytree(crashed_run, tmp_path / "run")
    return tmp_path / "run"


# ── text in files ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with train, dev and test text."""
    folder = tmp_path / "data"
    folder.mkdir()
    for split, count in (("train", 40), ("dev", 6), ("test", 6)):
        lines = [" ".join("abcdefgh"[(n * k) % 8] for k in range(2, 4 + n % 4)) for n in range(count)]
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        (folder / f"{split}.de").write_text("".join(f"{line[::-1]}\n" for line in lines), "utf-8")
    return folder


RecipeOfFiles = Callable[..., Recipe]


@pytest.fixture
def recipe_of_files(recipe_with: Callable[..., Recipe]) -> RecipeOfFiles:
    """`recipe_of_files(folder, *flags)`: the recipe with the text files of a folder."""

    def build(folder: Path, *flags: str) -> Recipe:
        splits = [f'data.{s}={{kind="pairs", src="{s}.en", tgt="{s}.de"}}' for s in ("train", "dev", "test")]
        return recipe_with(f'data.folder="{folder}"', *splits, "train.updates=12", *flags)

    return build


# ── processes that are killed ─────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def job(recipe_file: Path) -> Callable[..., Job]:
    """`job(run, at=…)`: a job for the driver, which trains that run."""
    return lambda run, flags=(), **options: training_job(recipe_file, run, flags, **options)


@pytest.fixture(scope="session")
def drive() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    with driver.process as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture(scope="session")
def same(contents: Contents) -> SameContents:
    """Whether a run has the same bits as an undisturbed one, and no checkpoint was taken for damaged. A kill after the
    last save may leave an additional old checkpoint."""

    def compare(run: Path, reference: Path) -> bool:
        expected, actual = contents(reference), contents(run)
        if list(run.glob("checkpoints/damaged-*")):
            return False
        older = [name for name in actual if name not in expected and name.startswith("checkpoints/step-")]
        return {name: content for name, content in actual.items() if name not in older} == expected

    return compare


@pytest.fixture(scope="session")
def reference(folder: Path, job: Callable[..., Job]) -> Path:
    """A run that was trained without interruption by the command that a user would type."""
    run = folder / "reference"
    command = [sys.executable, "-m", "saccade", *job(run)["command"]]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return run
