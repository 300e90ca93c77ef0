"""A running server, and how tests talk to it: byte by byte, so that they can misbehave."""

import http.client
import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 60  # seconds after which a test that waits for something fails
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Answer(NamedTuple):
    """One response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> str:
        """The sentence of an error, after checking its form."""
        assert self.headers["Content-Type"] == "application/json"
        found = self.json()
        assert list(found) == ["error"], found
        assert found["error"]
        return found["error"]


def until(what: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def read_answer(connection: socket.socket) -> Answer:
    with closing(http.client.HTTPResponse(connection)) as response:
        response.begin()
        return Answer(response.status, response.headers, response.read())


def closed_by_peer(connection: socket.socket) -> bool:
    """Read until the other side closes; False if it does not."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@dataclass
class Server:
    """Where a server listens; `process` and what it said if it is one of its own."""

    port: int
    process: subprocess.Popen[bytes] | None = None
    said: Path | None = None
    host: str = "127.0.0.1"

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)

    def head(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        """The lines above a body."""
        lines = {"Host": f"{self.host}:{self.port}", **headers}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode("latin-1")

    def begin(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> socket.socket:
        """Send a request and leave the answer unread."""
        connection = self.connect()
        length = {"Content-Length": str(len(body))} if body or method == "POST" else {}
        try:
            connection.sendall(self.head(method, path, {**length, **(headers or {})}) + body)
        except OSError:  # the server went away between the two: nobody else would close this end
            connection.close()
            raise
        return connection

    def ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        with closing(self.begin(method, path, body, headers)) as connection:
            return read_answer(connection)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, value: Any, headers: dict[str, str] | None = None) -> Answer:
        """A JSON body."""
        return self.ask("POST", path, json.dumps(value).encode(), {**JSON, **(headers or {})})

    def pour(self, path: str, pieces: Iterable[bytes], headers: dict[str, str]) -> Answer:
        """Send a body piece by piece until it is out or the server has had enough."""
        with closing(self.connect()) as connection:
            connection.sendall(self.head("POST", path, headers))
            try:
                for piece in pieces:
                    connection.sendall(piece)
            except ConnectionError:
                pass
            return read_answer(connection)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        found = re.findall(rf"^saccade_{name}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics").body.decode(), re.MULTILINE)
        assert found, f"no metric {name}"
        return sum(map(float, found))

    def memory(self, key: str) -> int:
        """A line of /proc/PID/status, in bytes: VmRSS, or VmHWM for the most there ever was."""
        assert self.process
        found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024
