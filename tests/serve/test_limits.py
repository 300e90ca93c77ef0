"""Requests over a limit are refused at once, and do not increase the server's memory."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import repeat

import pytest

from serve.http_client import FORM, JSON, Server, closed_by_peer, read_response

MEGABYTE = 2**20
ROUTES = {"/translate": "q", "/detect": "q", "/v1/translate": "text"}
LANGUAGES = {"source": "en", "target": "de"}


@pytest.fixture
def constant_memory(server: Server) -> Iterator[None]:
    """The server's peak memory grows by no more than a few times the limit on bodies."""
    server.post("/translate", {"q": "May 1, 2001", **LANGUAGES})
    before = server.memory("VmHWM")
    yield
    assert server.memory("VmHWM") - before < 16 * MEGABYTE


def chunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.usefixtures("constant_memory")
def test_body_of_100_megabytes_is_413(server: Server, route: str) -> None:
    """By its Content-Length, or without one as soon as it is too long."""
    megabytes = list(repeat(b'{"q": "' + b"a" * (MEGABYTE - 7), 100))
    declared = server.post_in_pieces(route, megabytes, {**JSON, "Content-Length": str(100 * MEGABYTE)})
    undeclared = server.post_in_pieces(route, chunked(megabytes), {**JSON, "Transfer-Encoding": "chunked"})
    form = server.post_in_pieces(route, chunked(megabytes), {**FORM, "Transfer-Encoding": "chunked"})
    for response in (declared, undeclared, form):
        assert response.status == 413
        assert response.error()


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "99999999999999999999", "5, 6", "+5"])
def test_invalid_content_length_is_refused(server: Server, length: str) -> None:
    response = server.request("POST", "/translate", b'{"q":1}', {**JSON, "Content-Length": length})
    assert response.status in (400, 413)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.usefixtures("constant_memory")
def test_text_over_the_limit_is_refused(server: Server, route: str) -> None:
    """By the limit on bytes, and for a shorter text by the limit on characters."""
    for length in (1_000_000, 400_000):
        response = server.post(route, {ROUTES[route]: "a" * length, **LANGUAGES})
        assert response.status in (400, 413)
        assert "character" in response.error() or length == 1_000_000


@pytest.mark.usefixtures("constant_memory")
def test_hundred_thousand_texts_are_refused(server: Server) -> None:
    """As JSON, and as a repeated form field."""
    texts = ["a"] * 100_000
    responses = [server.post("/translate", {"q": texts, **LANGUAGES}), server.post("/v1/translate", {"text": texts})]
    responses += [server.request("POST", "/translate", b"&".join([b"q=a"] * 100_000) + b"&source=en&target=de", FORM)]
    for response in responses:
        assert response.status in (400, 413)
        assert response.error()


@pytest.mark.usefixtures("constant_memory")
def test_fifty_thousand_fields_are_refused(server: Server) -> None:
    """Also with unknown names, which are not kept."""
    form = "&".join(f"f{number}=" for number in range(50_000)).encode()
    assert server.request("POST", "/translate", form, FORM).status in (400, 413)
    assert server.post("/translate", {f"f{number}": 1 for number in range(50_000)}).status in (400, 413)


def test_word_longer_than_the_model_accepts_is_cut_or_refused(server: Server) -> None:
    """A word without spaces is cut anywhere, or refused because of its tokens."""
    response = server.post("/v1/translate", {"text": "1234567890" * 180, **LANGUAGES})
    assert response.status in (200, 400)
    assert response.status == 200 or "token" in response.error()


def test_too_many_alternatives_error_names_the_field(server: Server) -> None:
    assert "alternatives" in server.post("/translate", {"q": "a", **LANGUAGES, "alternatives": 10**9}).error()


def test_frontend_settings_give_the_exact_character_limit(server: Server) -> None:
    limit = server.get("/frontend/settings").json()["charLimit"]
    assert server.post("/detect", {"q": "a" * limit}).status == 200
    assert server.post("/detect", {"q": "a" * (limit + 1)}).status in (400, 413)


# ── headers ───────────────────────────────────────────────────────────────────────────────────────

HEADERS = {
    "one long value": {"X-Long": "a" * 100_000},
    "one long name": {"X" * 100_000: "a"},
    "many": {f"X-{number}": "a" * 100 for number in range(1000)},
}


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize("pieces", [1, 50])
def test_head_of_100_kilobytes_is_431(server: Server, headers: str, pieces: int) -> None:
    head = server.head("GET", "/health", HEADERS[headers])
    size = len(head) // pieces + 1
    with closing(server.connect()) as connection:
        try:
            for first in range(0, len(head), size):
                connection.sendall(head[first : first + size])
                time.sleep(0.001 if pieces > 1 else 0)  # so that the pieces arrive separately
            response = read_response(connection)
        except ConnectionError:
            return  # the server closed the connection while the head was being sent
        assert response.status == 431
        assert response.error()
        assert closed_by_peer(connection)


def test_long_url_is_refused(server: Server) -> None:
    assert server.get("/health?" + "a" * 100_000).status in (414, 431)


@pytest.mark.usefixtures("constant_memory")
def test_endless_headers_are_431(server: Server) -> None:
    """After 20 megabytes of header lines."""
    with closing(server.connect()) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        try:
            for _ in range(20):
                connection.sendall(b"X-Long: a\r\n" * (MEGABYTE // 11))
        except ConnectionError:
            return
        assert read_response(connection).status == 431


@pytest.mark.usefixtures("constant_memory")
def test_long_chunk_extensions_are_refused(server: Server) -> None:
    pieces = [*repeat(b"1;" + b"a" * 10_000 + b"\r\n" + b" \r\n", 2000), b"0\r\n\r\n"]
    assert server.post_in_pieces("/translate", pieces, {**JSON, "Transfer-Encoding": "chunked"}).status in (400, 413)


def test_valid_chunked_request_is_accepted(server: Server) -> None:
    body = json.dumps({"q": "May 1, 2001", **LANGUAGES}).encode()
    pieces = [body[:5], body[5:20], body[20:]]
    assert server.post_in_pieces("/translate", chunked(pieces), {**JSON, "Transfer-Encoding": "chunked"}).status == 200
