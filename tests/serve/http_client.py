"""A running server, and an HTTP client on raw sockets, so that tests can also send invalid or incomplete requests."""

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

from serve.forked import ForkedProcess

TIMEOUT = 60  # seconds after which a test that waits fails
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Response(NamedTuple):
    """An HTTP response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> str:
        """The text of an error response, after checking its format."""
        assert self.headers["Content-Type"] == "application/json"
        body = self.json()
        assert list(body) == ["error"], body
        assert body["error"]
        return body["error"]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.02)


def read_response(connection: socket.socket) -> Response:
    with closing(http.client.HTTPResponse(connection)) as response:
        response.begin()
        return Response(response.status, response.headers, response.read())


def closed_by_peer(connection: socket.socket) -> bool:
    """Read until the server closes the connection; False if it does not."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


ServerProcess = subprocess.Popen[bytes] | ForkedProcess


@dataclass
class Server:
    """The address of a server, and its process and the file of its stderr if the tests started it."""

    port: int
    process: ServerProcess | None = None
    stderr: Path | None = None
    host: str = "127.0.0.1"

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=TIMEOUT)

    def head(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        """The request line and headers."""
        lines = {"Host": f"{self.host}:{self.port}", **headers}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode("latin-1")

    def begin(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> socket.socket:
        """Send a request without reading the response."""
        connection = self.connect()
        length = {"Content-Length": str(len(body))} if body or method == "POST" else {}
        try:
            connection.sendall(self.head(method, path, {**length, **(headers or {})}) + body)
        except OSError:  # the server stopped in between; the caller gets no socket to close
            connection.close()
            raise
        return connection

    def request(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Response:
        with closing(self.begin(method, path, body, headers)) as connection:
            return read_response(connection)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Response:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, value: Any, headers: dict[str, str] | None = None) -> Response:
        """POST a JSON body."""
        return self.request("POST", path, json.dumps(value).encode(), {**JSON, **(headers or {})})

    def post_in_pieces(self, path: str, pieces: Iterable[bytes], headers: dict[str, str]) -> Response:
        """Send a body piece by piece, to its end or until the server closes the connection."""
        with closing(self.connect()) as connection:
            connection.sendall(self.head("POST", path, headers))
            try:
                for piece in pieces:
                    connection.sendall(piece)
            except ConnectionError:
                pass
            return read_response(connection)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        metrics = self.get("/metrics").body.decode()
        values = re.findall(rf"^saccade_{name}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
        assert values, f"no metric {name}"
        return sum(map(float, values))

    def memory(self, key: str) -> int:
        """A value of /proc/PID/status in bytes: VmRSS, or VmHWM for its maximum so far."""
        assert self.process
        match = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert match
        return int(match[1]) * 1024
