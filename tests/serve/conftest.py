"""A tiny translator of dates, and real servers of it."""

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

from serve.wire import JSON, Answer, Server, until
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
    """The same weights under another name, for servers of several models."""
    return Path(shutil.copytree(run, run.parent / "back"))


@contextmanager
def serving(command: list[str], said: Path) -> Iterator[Server]:
    """A server that a command starts, ready."""
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, *command], stderr=stderr, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    try:
        server = Server(port_of(process, said), process, said)
        until(lambda: server.get("/readyz").status == 200)
        yield server
    finally:
        process.kill()
        process.wait()


def port_of(process: subprocess.Popen[bytes], said: Path) -> int:
    """The port, as soon as the server names it."""
    address = re.compile(r"http://127\.0\.0\.1:(\d+)")
    until(lambda: bool(address.search(said.read_text())) or process.poll() is not None)
    found = address.search(said.read_text())
    assert found, said.read_text()
    return int(found[1])


SERVE = ["-m", "saccade", "serve", "--port", "0"]


@pytest.fixture(scope="session")
def server(run: Path, back: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server as it is without any option, with a model for each direction."""
    with serving([*SERVE, f"en-de={run}", f"de-en={back}"], tmp_path_factory.mktemp("server") / "stderr") as started:
        yield started


Serve = Callable[..., Server]


@pytest.fixture(scope="module")
def serve(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """`serve("--api-key", "x")`: another server, with settings of its own."""
    with ExitStack() as servers:

        def start(*flags: object) -> Server:
            said = tmp_path_factory.mktemp("serve") / "stderr"
            return servers.enter_context(serving([*SERVE, f"en-de={run}", *map(str, flags)], said))

        yield start


class Faulty(Server):
    """A server of `faulty.py`."""

    folder: Path
    opened: ExitStack  # connections that tests may leave open

    def translate(self, text: str) -> Answer:
        return self.post("/translate", {"q": text, "source": "en", "target": "de"})

    def begin_translate(self, text: str) -> socket.socket:
        """The same, with the answer unread."""
        body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
        return self.opened.enter_context(closing(self.begin("POST", "/translate", body, JSON)))

    def begin_work(self, order: str, name: str) -> socket.socket:
        """Let the model hold or stall, and wait until it does."""
        connection = self.begin_translate(f"{order} {name}")
        until((self.folder / f"{name}.begun").exists)
        return connection

    def release(self, name: str) -> None:
        """Let the model go on that holds or stalls for this name."""
        (self.folder / name).touch()


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Faulty]]:
    """`faulty(batch=1, queue=3)`: the server with a model that does as the text says, and these settings."""
    with ExitStack() as servers:

        def start(**settings: object) -> Faulty:
            folder = tmp_path_factory.mktemp("faulty")
            command = [str(Path(__file__).with_name("faulty.py")), str(folder), json.dumps(settings)]
            found = servers.enter_context(serving(command, folder / "stderr"))
            server = Faulty(found.port, found.process, found.said)
            server.folder, server.opened = folder, servers
            return server

        yield start
