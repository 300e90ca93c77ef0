"""Slow, silent and never-reading clients: two hundred of each at once, and others are served all the while."""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from serve.conftest import Faulty
from serve.wire import FORM, JSON, Server, closed_by_peer, read_answer, until

CROWD = 200


@pytest.fixture(scope="module")
def brisk(faulty) -> Faulty:
    """Short time-outs, so that tests need not wait for long ones."""
    return faulty(header_timeout=1, body_timeout=1, write_timeout=1, keep_alive=1)


@pytest.fixture
def crowd() -> Iterator[ExitStack]:
    with ExitStack() as connections:
        yield connections


def join(crowd: ExitStack, server: Server, first: bytes) -> list[socket.socket]:
    """Two hundred connections, each with the same first words."""
    connections = [crowd.enter_context(closing(server.connect())) for _ in range(CROWD)]
    for connection in connections:
        connection.sendall(first)
    return connections


def descriptors(server: Server) -> int:
    assert server.process
    return len(os.listdir(Path("/proc") / str(server.process.pid) / "fd"))


def drip_until_closed(server: Faulty, connections: list[socket.socket], byte: bytes) -> None:
    """Send a byte now and then on each until none takes any more; others are served all the while."""
    waiting = list(connections)

    def drip() -> bool:
        for connection in list(waiting):
            try:
                connection.sendall(byte)
            except ConnectionError:
                waiting.remove(connection)
        still_served(server)
        time.sleep(0.1)
        return not waiting

    until(drip)


def still_served(server: Faulty) -> None:
    assert server.translate("two").json() == {"translatedText": "TWO"}


@pytest.mark.parametrize("first", [b"", b"G", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: localhost"])
def test_half_a_head(brisk: Faulty, crowd: ExitStack, first: bytes) -> None:
    """A 14; C3 32: closed after the time-out."""
    connections = join(crowd, brisk, first)
    still_served(brisk)
    assert all(closed_by_peer(connection) for connection in connections)
    still_served(brisk)


def test_half_a_head_is_told_why(brisk: Faulty) -> None:
    with closing(brisk.connect()) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        answer = read_answer(connection)
        assert answer.status == 408
        assert answer.error()


def test_heads_that_drip(brisk: Faulty, crowd: ExitStack) -> None:
    """C3 32: a byte now and then does not buy time."""
    drip_until_closed(brisk, join(crowd, brisk, b"GET /health HTTP/1.1\r\n"), b"X")


@pytest.mark.parametrize("headers", [JSON, FORM])
def test_bodies_that_drip(brisk: Faulty, crowd: ExitStack, headers: dict[str, str]) -> None:
    """C3 32: a body of a byte now and then is given up, with a reason, and the connection is closed."""
    head = brisk.head("POST", "/translate", {**headers, "Content-Length": "1000"})
    connections = join(crowd, brisk, head)
    drip_until_closed(brisk, connections, b" ")


def test_half_a_body_is_told_why(brisk: Faulty) -> None:
    for headers in ({"Content-Length": "1000"}, {"Transfer-Encoding": "chunked"}):
        with closing(brisk.connect()) as connection:
            connection.sendall(brisk.head("POST", "/translate", {**JSON, **headers}))
            answer = read_answer(connection)
            assert answer.status == 408
            assert answer.error()
            assert closed_by_peer(connection)


@pytest.mark.slow
def test_clients_that_never_read(brisk: Faulty, crowd: ExitStack) -> None:
    """C3 32: they ask for more than the machine keeps for them and take no answer; their connections are cut."""
    until(lambda: descriptors(brisk) < CROWD / 2)
    before = descriptors(brisk)
    body = b'{"q": "long 500000", "source": "en", "target": "de"}'
    asked = (brisk.head("POST", "/translate", {**JSON, "Content-Length": str(len(body))}) + body) * 16
    for _ in range(CROWD):
        connection = crowd.enter_context(closing(socket.socket()))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect((brisk.host, brisk.port))
        connection.sendall(asked)
    still_served(brisk)
    until(lambda: descriptors(brisk) <= before)
    still_served(brisk)


def test_idle_connections_are_closed(brisk: Faulty) -> None:
    with closing(brisk.begin("GET", "/health")) as connection:
        assert read_answer(connection).status == 200
        assert closed_by_peer(connection)


def test_a_connection_is_kept_for_further_requests(brisk: Faulty) -> None:
    with closing(brisk.connect()) as connection:
        for _ in range(5):
            connection.sendall(brisk.head("GET", "/health", {}))
            assert read_answer(connection).status == 200


def test_more_connections_than_allowed(faulty) -> None:
    """A 15: an outer wall that admits as many as it says and turns others away in the form all refusals have."""
    server = faulty(connections=4)
    with ExitStack() as kept:
        connections = [kept.enter_context(closing(server.connect())) for _ in range(4)]
        for connection in connections:
            connection.sendall(server.head("GET", "/health", {}))
            assert read_answer(connection).status == 200
        answer = server.get("/health")
        assert answer.status == 503
        assert answer.error()
        assert int(answer.headers["Retry-After"]) >= 1
        connections[0].sendall(server.head("GET", "/health", {}))
        assert read_answer(connections[0]).status == 200
    until(lambda: server.get("/health").status == 200)


def test_requests_in_one_go(brisk: Faulty) -> None:
    """Several requests sent without waiting are answered in order."""
    with closing(brisk.connect()) as connection:
        connection.sendall(
            brisk.head("GET", "/health", {}) * 3 + brisk.head("GET", "/no/such", {"Connection": "close"})
        )
        said = connection.makefile("rb").read()
    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200"] * 3 + [b"404"]


@pytest.mark.parametrize(
    "bytes_",
    [
        b"\x00" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\nHost: localhost\n\n\n",
        b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\x00\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nExpect: 200-maybe\r\n\r\n",
    ],
    ids=range(14),
)
def test_what_is_no_http(brisk: Faulty, bytes_: bytes) -> None:
    """C3 30: noise below the level of requests."""
    with closing(brisk.connect()) as connection:
        connection.sendall(bytes_)
        said = b""
        try:
            while piece := connection.recv(65536):
                said += piece
        except ConnectionError:
            pass
    assert not said or int(said.split()[1]) in (200, 400, 404, 405, 408, 415, 417, 421, 422, 501, 505)
    still_served(brisk)
