"""One tiny trained run, and a fixture that runs commands in this process, because starting one each time is slow."""

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jaxtyping
import pytest

RECIPE = """
seed = 1

[data]
train = { kind = "sort", rows = 400, shortest = 1, longest = 6, symbols = 8 }
dev = { kind = "sort", rows = 8, shortest = 1, longest = 6, symbols = 8, split = "dev" }
test = { kind = "sort", rows = 12, shortest = 1, longest = 6, symbols = 8, split = "test" }
tokenizer = "words"
longest = 20

[model]
dim = 32
dropout = { residual = 0.0, embedding = 0.0 }
block.self.heads = 2
block.cross.heads = 2
block.feed_forward.inner = 64
encoder.depth = 1
decoder.depth = 1

[train]
updates = 60
batch_tokens = 256
schedule = { kind = "inverse_root", rate = 0.01, warmup = 10 }
log_every = 20
validate_every = 30
"""


@pytest.fixture(scope="module", autouse=True)
def without_shape_checks() -> Iterator[None]:
    """Other tests check shapes."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    path.write_text(RECIPE, "utf-8")
    return path


@pytest.fixture(scope="module")
def run(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from saccade.api import train
    from saccade.training.progress import Silent

    return train(recipe, tmp_path_factory.mktemp("runs") / "tiny", report=Silent()).folder.path


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    """`call("translate", run, stdin=b"a b\\n")` runs a command in this process."""
    from saccade.cli import main

    def run_command(*arguments: object, stdin: bytes = b"") -> CommandResult:
        command = [str(argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", ["saccade", *command])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        code = main(command)
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return run_command
