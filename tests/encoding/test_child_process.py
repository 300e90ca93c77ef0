"""A child process imports what its parent imports, ends with it, and says why it failed."""

import errno
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.data.tokenizers import SentencePieceKind
from saccade.encoding import tokenizer_pool
from saccade.encoding.child_process import ChildProcess
from saccade.encoding.tokenizer_pool import TokenizerPool
from saccade.errors import RunError


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with modules that a child can import."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def error_of(child: ChildProcess) -> str:
    with pytest.raises(RunError) as error:
        child.receive()
    child.close()
    return str(error.value)


def test_memory_is_blamed_only_if_the_child_was_killed(modules: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (modules / "killed.py").write_text(f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", "utf-8")
    assert "ended with exit code -9; it was killed, perhaps because memory was short" in error_of(
        ChildProcess("killed", "works")
    )
    (modules / "broken.py").write_text("import no_such_module", "utf-8")
    error = error_of(ChildProcess("broken", "works"))
    assert error == "a process that works ended with exit code 1; see the message above"
    assert "No module named 'no_such_module'" in capfd.readouterr().err


def test_child_that_cannot_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork(*args: Any, **options: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", fork)
    with pytest.raises(RunError, match="a process that works cannot be started: Cannot allocate memory; if memory or"):
        ChildProcess("any", "works")


def test_child_imports_from_the_current_folder_as_its_parent_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.py").write_text("raise SystemExit(7)", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert "exit code 7" in error_of(ChildProcess("here", "works"))


# ── the tokenizer process ─────────────────────────────────────────────────────────────────────────

RECORDING = """
import sys
from sentencepiece import SentencePieceProcessor

encode = SentencePieceProcessor.EncodeAsIds

def recorded(self, texts, **options):
    print("threads", options.get("num_threads"), file=sys.stderr)
    return encode(self, texts, **options)

SentencePieceProcessor.EncodeAsIds = recorded
from saccade.encoding.tokenizer_process import main

main()
"""


class Column:
    """A block with one column of texts."""

    def __init__(self, texts: list[str]):
        self.columns = ["\n".join(texts).encode()]


def test_each_of_several_tokenizer_processes_has_one_thread(
    modules: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (modules / "recording.py").write_text(RECORDING, "utf-8")
    monkeypatch.setattr(tokenizer_pool, "ChildProcess", lambda module, does: ChildProcess("recording", does))
    texts = [f"a{number} b" for number in range(100)]
    tokenizer = SentencePieceKind(size=40).learn(texts)
    with TokenizerPool[Column]("sentencepiece", [tokenizer], 2) as pool:
        encoded = [rows for _, [rows] in pool.encoded([Column(texts)] * 3)]
    for rows in encoded:
        assert np.array_equal(rows.values, encoded[0].values)
    assert capfd.readouterr().err.splitlines() == ["threads 1"] * 2


# ── a parent that is killed ───────────────────────────────────────────────────────────────────────

PARENT = """
from saccade.data.tokenizers import WordKind
from saccade.encoding import learning
from saccade.encoding.child_process import ChildProcess

learning.ChildProcess = lambda module, does: ChildProcess("slow_learning", does)
learning.LearnedInProcess(WordKind(), {"kind": "words"}).learn(['a b'])
"""
SLOW_LEARNING = """
import os, sys, time
from saccade.data.tokenizers import WordKind
from saccade.encoding import learning_process

learn = WordKind.learn

def slow_learn(self, texts):
    learned = learn(self, texts)
    print("learning", file=sys.stderr, flush=True)
    WAIT
    return learned

WordKind.learn = slow_learn
learning_process.main()
"""


@pytest.mark.parametrize(
    "wait",
    [
        "time.sleep(600)",
        "os.read(0, 1)",  # until the parent ends, so that the answer cannot be sent
    ],
)
def test_learning_process_ends_silently_if_its_parent_is_killed(wait: str, modules: Path) -> None:
    slow = SLOW_LEARNING.replace("WAIT", wait)
    if wait == "os.read(0, 1)":
        slow = slow.replace("learn = ", "learning_process._end_with_parent = lambda: None\nlearn = ", 1)
    (modules / "slow_learning.py").write_text(slow, "utf-8")
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=modules) as parent:
        assert parent.stderr is not None
        assert parent.stderr.readline() == "learning\n"
        parent.kill()
        assert parent.communicate(timeout=60)[1] == ""  # stderr is open for as long as the child lives
