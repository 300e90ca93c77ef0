"""A small translation model for dates, and real servers that serve it."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import jaxtyping
import pytest

from serve.forked import ForkedProcess, saccade_command
from serve.http_client import JSON, Response, Server, ServerProcess, wait_until
from serve.scripted_server import serve_scripted
from view.browser import skip_without_browser

SMALL = {
    "extends": "demo",
    "data": {"train": {"rows": 2000}, "dev": {"rows": 20}, "test": {"rows": 20}},
    "model": {"dim": 32, "encoder": {"depth": 1}, "decoder": {"depth": 1}},
    "train": {
        "updates": 100,
        "batch_tokens": 512,
        "validate_every": 100,
        "schedule": {"warmup": 20},
        "best_by": "loss",
    },
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    skip_without_browser(item)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from saccade.api import train
    from saccade.training.progress import Silent

    jaxtyping.config.update("jaxtyping_disable", True)
    folder = train(SMALL, tmp_path_factory.mktemp("runs") / "dates", report=Silent()).folder.path
    jaxtyping.config.update("jaxtyping_disable", False)
    return folder


@pytest.fixture(scope="session")
def back(run: Path) -> Path:
    """A copy of the run under another name, for servers with several models."""
    return Path(shutil.copytree(run, run.parent / "back"))


@contextmanager
def serving(process: ServerProcess, stderr: Path) -> Iterator[Server]:
    """The server of a started process, when it is ready."""
    try:
        server = Server(port_of(process, stderr), process, stderr)
        wait_until(lambda: server.get("/readyz").status == 200)
        yield server
    finally:
        process.kill()
        process.wait()


def port_of(process: ServerProcess, stderr: Path) -> int:
    """Wait for the port that the server prints."""
    address = re.compile(r"http://127\.0\.0\.1:(\d+)")

    def printed() -> str:
        return stderr.read_text() if stderr.exists() else ""

    wait_until(lambda: bool(address.search(printed())) or process.poll() is not None)
    match = address.search(printed())
    assert match, printed()
    return int(match[1])


@pytest.fixture(scope="session")
def server(run: Path, back: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server with default options, and one model for each direction."""
    stderr = tmp_path_factory.mktemp("server") / "stderr"
    command = [sys.executable, "-m", "saccade", "serve", "--port", "0", f"en-de={run}", f"de-en={back}"]
    with stderr.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1"})
    with serving(process, stderr) as started:
        yield started


Serve = Callable[..., Server]


@pytest.fixture(scope="module")
def serve(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """`serve("--api-keys", file)`: another server with these options."""
    with ExitStack() as servers:

        def start(*flags: object) -> Server:
            stderr = tmp_path_factory.mktemp("serve") / "stderr"
            words = ["serve", "--port", "0", f"en-de={run}", *map(str, flags)]
            return servers.enter_context(serving(ForkedProcess(saccade_command, words, stderr), stderr))

        yield start


class ScriptedServer(Server):
    """A server started by `scripted_server.py`."""

    folder: Path
    connections: ExitStack  # closed after the tests of a module

    def translate(self, text: str) -> Response:
        return self.post("/translate", {"q": text, "source": "en", "target": "de"})

    def begin_translate(self, text: str) -> socket.socket:
        """The same without reading the response."""
        body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
        return self.connections.enter_context(closing(self.begin("POST", "/translate", body, JSON)))

    def begin_blocked(self, command: str, name: str) -> socket.socket:
        """Block the model with "hold" or "stall", and wait until it has begun."""
        connection = self.begin_translate(f"{command} {name}")
        wait_until((self.folder / f"{name}.begun").exists)
        return connection

    def release(self, name: str) -> None:
        """Unblock the model that was blocked under this name."""
        (self.folder / name).touch()


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ScriptedServer]]:
    """`scripted(batch=1, queue=3)`: a server of the scripted model with these settings."""
    with ExitStack() as servers:

        def start(**settings: object) -> ScriptedServer:
            folder = tmp_path_factory.mktemp("scripted")
            stderr = folder / "stderr"
            process = ForkedProcess(serve_scripted, [str(folder), json.dumps(settings)], stderr)
            started = servers.enter_context(serving(process, stderr))
            server = ScriptedServer(started.port, started.process, started.stderr)
            server.folder, server.connections = folder, servers
            return server

        yield start
