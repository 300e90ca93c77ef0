"""Runs Python files in forked children, so that many of them share one import of torch.

Run as a script, this module reads one path per line from stdin, executes the file in a child, and prints the exit code.
"""

import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class ForkingRunner:
    """The parent process of the children. All of them run in `folder`."""

    def __init__(self, folder: Path):
        self._folder = folder
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen([sys.executable, __file__], cwd=folder, text=True, env=environment, **pipes)

    def run(self, name: str, code: str) -> tuple[int, str]:
        """The exit code of a Python program, and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        path = self._folder / f"{name}.py"
        path.write_text(code, "utf-8")
        print(path, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline()), path.with_suffix(".out").read_text("utf-8")

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()


@contextmanager
def forking_runner(folder: Path) -> Iterator[ForkingRunner]:
    runner = ForkingRunner(folder)
    try:
        yield runner
    finally:
        runner.close()


def run_in_child(path: Path) -> int:
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        output = os.open(path.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        runpy.run_path(str(path), run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    import saccade.api  # noqa: F401  # imports torch, once for all children

    for line in sys.stdin:
        print(run_in_child(Path(line.rstrip("\n"))), flush=True)


if __name__ == "__main__":
    main()
