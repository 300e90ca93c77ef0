"""Slow, silent and non-reading clients: two hundred at once do not keep the server from answering others."""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from serve.conftest import ScriptedServer
from serve.http_client import FORM, JSON, Server, closed_by_peer, read_response, wait_until

CONNECTIONS = 200


@pytest.fixture(scope="module")
def short_timeouts(scripted) -> ScriptedServer:
    """A server with timeouts of one second."""
    return scripted(head_timeout=1, body_timeout=1, write_timeout=1, keep_alive=1)


@pytest.fixture
def open_connections() -> Iterator[ExitStack]:
    """Closes all connections after a test."""
    with ExitStack() as connections:
        yield connections


def connect_many(open_connections: ExitStack, server: Server, first: bytes) -> list[socket.socket]:
    """Open two hundred connections and send the same bytes on each."""
    connections = [open_connections.enter_context(closing(server.connect())) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.sendall(first)
    return connections


def open_file_descriptors(server: Server) -> int:
    assert server.process
    return len(os.listdir(Path("/proc") / str(server.process.pid) / "fd"))


def send_slowly_until_closed(server: ScriptedServer, connections: list[socket.socket], byte: bytes) -> None:
    """Send a byte every 0.1 s on each connection until the server has closed all, and check that it answers others."""
    waiting = list(connections)

    def send_next_byte() -> bool:
        for connection in list(waiting):
            try:
                connection.sendall(byte)
            except ConnectionError:
                waiting.remove(connection)
        assert_answers(server)
        time.sleep(0.1)
        return not waiting

    wait_until(send_next_byte)


def assert_answers(server: ScriptedServer) -> None:
    assert server.translate("two").json() == {"translatedText": "TWO"}


@pytest.mark.parametrize("first", [b"", b"G", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: localhost"])
def test_incomplete_head_times_out(short_timeouts: ScriptedServer, open_connections: ExitStack, first: bytes) -> None:
    connections = connect_many(open_connections, short_timeouts, first)
    assert_answers(short_timeouts)
    assert all(closed_by_peer(connection) for connection in connections)
    assert_answers(short_timeouts)


def test_head_timeout_is_408(short_timeouts: ScriptedServer) -> None:
    with closing(short_timeouts.connect()) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        response = read_response(connection)
        assert response.status == 408
        assert response.error()


def test_head_sent_byte_by_byte_times_out(short_timeouts: ScriptedServer, open_connections: ExitStack) -> None:
    """Each further byte does not extend the timeout."""
    connections = connect_many(open_connections, short_timeouts, b"GET /health HTTP/1.1\r\n")
    send_slowly_until_closed(short_timeouts, connections, b"X")


@pytest.mark.parametrize("headers", [JSON, FORM])
def test_body_sent_byte_by_byte_times_out(
    short_timeouts: ScriptedServer, open_connections: ExitStack, headers: dict[str, str]
) -> None:
    head = short_timeouts.head("POST", "/translate", {**headers, "Content-Length": "1000"})
    connections = connect_many(open_connections, short_timeouts, head)
    send_slowly_until_closed(short_timeouts, connections, b" ")


def test_body_timeout_is_408(short_timeouts: ScriptedServer) -> None:
    for headers in ({"Content-Length": "1000"}, {"Transfer-Encoding": "chunked"}):
        with closing(short_timeouts.connect()) as connection:
            connection.sendall(short_timeouts.head("POST", "/translate", {**JSON, **headers}))
            response = read_response(connection)
            assert response.status == 408
            assert response.error()
            assert closed_by_peer(connection)


@pytest.mark.slow
def test_clients_that_do_not_read_are_disconnected(short_timeouts: ScriptedServer, open_connections: ExitStack) -> None:
    """The responses exceed the socket buffers, so the server must close the connections of clients that do not read."""
    wait_until(lambda: open_file_descriptors(short_timeouts) < CONNECTIONS / 2)
    before = open_file_descriptors(short_timeouts)
    body = b'{"q": "long 500000", "source": "en", "target": "de"}'
    requests = (short_timeouts.head("POST", "/translate", {**JSON, "Content-Length": str(len(body))}) + body) * 16
    for _ in range(CONNECTIONS):
        connection = open_connections.enter_context(closing(socket.socket()))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect((short_timeouts.host, short_timeouts.port))
        connection.sendall(requests)
    assert_answers(short_timeouts)
    wait_until(lambda: open_file_descriptors(short_timeouts) <= before)
    assert_answers(short_timeouts)


def test_idle_connection_is_closed(short_timeouts: ScriptedServer) -> None:
    with closing(short_timeouts.begin("GET", "/health")) as connection:
        assert read_response(connection).status == 200
        assert closed_by_peer(connection)


def test_connection_is_reused_for_further_requests(short_timeouts: ScriptedServer) -> None:
    with closing(short_timeouts.connect()) as connection:
        for _ in range(5):
            connection.sendall(short_timeouts.head("GET", "/health", {}))
            assert read_response(connection).status == 200


def test_connection_over_the_limit_is_503(scripted) -> None:
    """Connections over the limit get an error response; the others are still answered."""
    server = scripted(connections=4)
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(server.connect())) for _ in range(4)]
        for connection in connections:
            connection.sendall(server.head("GET", "/health", {}))
            assert read_response(connection).status == 200
        response = server.get("/health")
        assert response.status == 503
        assert response.error()
        assert int(response.headers["Retry-After"]) >= 1
        connections[0].sendall(server.head("GET", "/health", {}))
        assert read_response(connections[0]).status == 200
    wait_until(lambda: server.get("/health").status == 200)


def test_pipelined_requests_are_answered_in_order(short_timeouts: ScriptedServer) -> None:
    """Several requests sent without waiting are answered in order."""
    with closing(short_timeouts.connect()) as connection:
        connection.sendall(
            short_timeouts.head("GET", "/health", {}) * 3
            + short_timeouts.head("GET", "/no/such", {"Connection": "close"})
        )
        data = connection.makefile("rb").read()
    assert re.findall(rb"HTTP/1.1 (\d+)", data) == [b"200"] * 3 + [b"404"]


@pytest.mark.parametrize(
    "data",
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
def test_invalid_http_is_refused(short_timeouts: ScriptedServer, data: bytes) -> None:
    with closing(short_timeouts.connect()) as connection:
        connection.sendall(data)
        received = b""
        try:
            while piece := connection.recv(65536):
                received += piece
        except ConnectionError:
            pass
    assert not received or int(received.split()[1]) in (200, 400, 404, 405, 408, 415, 417, 421, 422, 501, 505)
    assert_answers(short_timeouts)
