"""Servers in processes that are forked from one that has imported everything, which saves each server two seconds."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["saccade.cli", "saccade.serve.server", "serve.forked", "serve.scripted_server"])


def saccade_command(*words: str) -> int:
    """A command as a user types it, without its first word."""
    from saccade.cli import main

    sys.argv = ["saccade", *words]
    return main(list(words))


class ForkedProcess:
    """A function in a forked process, with the methods of `subprocess.Popen` that the tests use. Its stdout goes to a
    file beside that of stderr."""

    def __init__(self, function: Callable[..., int | None], arguments: Sequence[str], stderr: Path):
        words = (function, arguments, str(stderr), dict(os.environ))
        self._process = FORKS.Process(target=_run, args=words, daemon=True)
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def stdout_beside(stderr: Path) -> Path:
    return stderr.with_name(f"{stderr.name}.stdout")


def _run(function: Callable[..., int | None], arguments: Sequence[str], stderr: str, environment: dict[str, str]):
    import torch

    for number, path in ((1, stdout_beside(Path(stderr))), (2, Path(stderr))):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    try:
        code = function(*arguments)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
