"""A program of Saccade in a process of its own that exchanges messages with this one. It is neither a fork nor a
`multiprocessing` process, because those would copy the threads' locks of torch or run the user's script again."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from saccade.encoding.messages import receive, send
from saccade.errors import RunError


class ChildProcess:
    """Runs a module of Saccade. `does` completes the sentence "a process that …" of an error."""

    def __init__(self, module: str, does: str):
        command = [sys.executable, "-P", "-m", module]
        try:
            folders = (folder or os.getcwd() for folder in sys.path)
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise RunError(
                f"a process that {does} cannot be started: {error.strerror or error}; if memory or open files ran out, "
                "free some, and run the same command again"
            ) from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output, self._does = self._process.stdin, self._process.stdout, does

    def send(self, parts: Sequence[bytes]) -> None:
        try:
            send(self._input, parts)
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> list[bytes]:
        parts = receive(self._output)
        if parts is None:
            raise self._ended()
        return parts

    def _ended(self) -> RunError:
        code = self._process.wait()
        killed = "it was killed, perhaps because memory was short: free some, and run the same command again"
        advice = killed if code == -signal.SIGKILL else "see the message above"
        return RunError(f"a process that {self._does} ended with exit code {code}; {advice}")

    def close(self) -> None:
        """Close the input, which ends a child that waits for a message, and wait for its end."""
        with suppress(BrokenPipeError):
            self._input.close()
        self._output.close()
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self.close()
