"""Limits are kept at once, and memory stays where it was."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import repeat

import pytest

from serve.wire import FORM, JSON, Server, closed_by_peer, read_answer

MEGABYTE = 2**20
ROUTES = {"/translate": "q", "/detect": "q", "/v1/translate": "text"}
LANGUAGES = {"source": "en", "target": "de"}


@pytest.fixture
def flat(server: Server) -> Iterator[None]:
    """The most memory the server ever held does not grow by more than a body may weigh, times a few."""
    server.post("/translate", {"q": "May 1, 2001", **LANGUAGES})
    before = server.memory("VmHWM")
    yield
    assert server.memory("VmHWM") - before < 16 * MEGABYTE


def chunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.usefixtures("flat")
def test_a_body_of_100_megabytes(server: Server, route: str) -> None:
    """A 14; C3 29: refused by its announced length, and where none is announced as soon as it is too long."""
    megabytes = list(repeat(b'{"q": "' + b"a" * (MEGABYTE - 7), 100))
    told = server.pour(route, megabytes, {**JSON, "Content-Length": str(100 * MEGABYTE)})
    untold = server.pour(route, chunked(megabytes), {**JSON, "Transfer-Encoding": "chunked"})
    form = server.pour(route, chunked(megabytes), {**FORM, "Transfer-Encoding": "chunked"})
    for answer in (told, untold, form):
        assert answer.status == 413
        assert answer.error()


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "99999999999999999999", "5, 6", "+5"])
def test_lengths_that_lie(server: Server, length: str) -> None:
    """C3 29."""
    answer = server.ask("POST", "/translate", b'{"q":1}', {**JSON, "Content-Length": length})
    assert answer.status in (400, 413)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.usefixtures("flat")
def test_a_text_of_a_million_characters(server: Server, route: str) -> None:
    """C3 29: by the limit of bytes, and just below it by that of characters."""
    for length in (1_000_000, 400_000):
        answer = server.post(route, {ROUTES[route]: "a" * length, **LANGUAGES})
        assert answer.status in (400, 413)
        assert "character" in answer.error() or length == 1_000_000


@pytest.mark.usefixtures("flat")
def test_a_batch_of_a_hundred_thousand(server: Server) -> None:
    """C3 29, as JSON and as a field that is repeated."""
    many = ["a"] * 100_000
    answers = [server.post("/translate", {"q": many, **LANGUAGES}), server.post("/v1/translate", {"text": many})]
    answers += [server.ask("POST", "/translate", b"&".join([b"q=a"] * 100_000) + b"&source=en&target=de", FORM)]
    for answer in answers:
        assert answer.status in (400, 413)
        assert answer.error()


@pytest.mark.usefixtures("flat")
def test_many_fields(server: Server) -> None:
    """C3 29: names that nobody reads are not kept either."""
    form = "&".join(f"f{number}=" for number in range(50_000)).encode()
    assert server.ask("POST", "/translate", form, FORM).status in (400, 413)
    assert server.post("/translate", {f"f{number}": 1 for number in range(50_000)}).status in (400, 413)


def test_a_word_that_is_longer_than_a_model_reads(server: Server) -> None:
    """The limit of tokens: one endless word cannot be split into sentences."""
    answer = server.post("/v1/translate", {"text": "1234567890" * 180, **LANGUAGES})
    assert answer.status in (200, 400)
    assert answer.status == 200 or "token" in answer.error()


def test_more_alternatives_than_allowed(server: Server) -> None:
    """C3 29: the limit is told."""
    assert "alternatives" in server.post("/translate", {"q": "a", **LANGUAGES, "alternatives": 10**9}).error()


def test_frontend_settings_tell_the_limit_of_characters(server: Server) -> None:
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
def test_headers_of_100_kilobytes(server: Server, headers: str, pieces: int) -> None:
    """A 14: refused in one piece and in many."""
    head = server.head("GET", "/health", HEADERS[headers])
    size = len(head) // pieces + 1
    with closing(server.connect()) as connection:
        try:
            for first in range(0, len(head), size):
                connection.sendall(head[first : first + size])
                time.sleep(0.001 if pieces > 1 else 0)  # so that it arrives in pieces
            answer = read_answer(connection)
        except ConnectionError:
            return  # hung up on while still talking: refused, too
        assert answer.status == 431
        assert answer.error()
        assert closed_by_peer(connection)


def test_a_long_address(server: Server) -> None:
    assert server.get("/health?" + "a" * 100_000).status in (414, 431)


@pytest.mark.usefixtures("flat")
def test_headers_without_end(server: Server) -> None:
    """A 14: 20 megabytes of header lines that never end."""
    with closing(server.connect()) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        try:
            for _ in range(20):
                connection.sendall(b"X-Long: a\r\n" * (MEGABYTE // 11))
        except ConnectionError:
            return
        assert read_answer(connection).status == 431


@pytest.mark.usefixtures("flat")
def test_chunks_with_long_extensions(server: Server) -> None:
    """A 14: what stands beside the chunks of a body is not kept."""
    pieces = [*repeat(b"1;" + b"a" * 10_000 + b"\r\n" + b" \r\n", 2000), b"0\r\n\r\n"]
    assert server.pour("/translate", pieces, {**JSON, "Transfer-Encoding": "chunked"}).status in (400, 413)


def test_a_good_request_is_still_served(server: Server) -> None:
    body = json.dumps({"q": "May 1, 2001", **LANGUAGES}).encode()
    pieces = [body[:5], body[5:20], body[20:]]
    assert server.pour("/translate", chunked(pieces), {**JSON, "Transfer-Encoding": "chunked"}).status == 200
