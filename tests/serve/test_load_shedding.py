"""Load shedding refuses only complete translation requests, with the response that the application would give."""

from contextlib import closing

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.serve.errors import ApiError
from saccade.serve.load_shedding import LoadShedder, is_translation_request
from saccade.serve.metrics import Metrics
from serve.conftest import ScriptedServer
from serve.http_client import JSON, read_response, wait_until

BODY = b'{"q":"one","source":"en","target":"de"}'


def request(path: str = "/translate", headers: str = "", body: bytes = BODY, method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def test_complete_translation_requests_are_recognized() -> None:
    for data in (request(), request("/v1/translate"), request(headers="Connection: keep-alive\r\n"), request(body=b"")):
        assert is_translation_request(data)


@pytest.mark.parametrize(
    "other",
    [
        request(method="GET"),
        request("/translate?q=a"),
        request("/translate_file"),
        request("/health"),
        request()[:-1],
        request() + b"x",
        request() + request(),
        request(headers="Content-Length: 39\r\n"),
        request(headers="Transfer-Encoding: chunked\r\n"),
        request(headers="Connection: close\r\n"),
        request(headers="Expect: 100-continue\r\n"),
        request(headers="Origin: https://example.org\r\n"),
        request().replace(b"1.1", b"1.0"),
        request().replace(b"Content-Length", b"Content-Size"),
        request().replace(b"Content-Length: ", b"Content-Length: +"),
        request()[:30],
        b"",
    ],
)
def test_other_data_is_left_to_the_parser(other: bytes) -> None:
    assert not is_translation_request(other)


HEADERS = st.lists(
    st.sampled_from(
        [
            "Content-Length: 3",
            "content-length:3",
            "Content-Length: 4",
            "Content-Length: 3, 3",
            "Content-Length : 3",
            "Transfer-Encoding: chunked",
            "X: Content-Length: 3",
            "X-Content-Length: 4",
            "Connection: Close",
            "Connection:\tkeep-alive",
            "Accept: */*",
        ]
    ),
    max_size=4,
)


@given(HEADERS, st.binary(max_size=6), st.sampled_from(["/translate", "/v1/translate"]))
def test_parser_agrees_on_recognized_requests(headers: list[str], body: bytes, path: str) -> None:
    """If the data counts as one complete request and is valid, h11 parses exactly one request with this body."""
    head = "".join(f"{line}\r\n" for line in [f"POST {path} HTTP/1.1", "Host: localhost", *headers])
    data = head.encode() + b"\r\n" + body
    if not is_translation_request(data):
        return
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(data)
    try:
        events = [parser.next_event()]
    except h11.RemoteProtocolError:
        return
    while not isinstance(events[-1], h11.EndOfMessage):
        events.append(parser.next_event())
    assert b"".join(bytes(event.data) for event in events if isinstance(event, h11.Data)) == body
    assert parser.next_event() in (h11.NEED_DATA, h11.PAUSED)
    assert parser.trailing_data[0] == b""
    assert parser.their_state is h11.DONE  # the connection can be reused


def test_nothing_is_refused_while_there_is_capacity() -> None:
    assert LoadShedder(lambda: None, Metrics()).refusal(request()) is None


def test_refused_requests_are_counted() -> None:
    def refuse() -> None:
        raise ApiError(503, "no", 7, "overloaded")

    metrics = Metrics()
    shedder = LoadShedder(refuse, metrics)
    assert shedder.refusal(request(method="GET")) is None
    assert shedder.refusal(request("/v1/translate"))
    page = metrics.exposition().decode()
    assert 'saccade_requests_total{endpoint="/v1/translate",status="503"} 1.0' in page
    assert 'saccade_rejected_total{reason="overloaded"} 1.0' in page


def test_connection_over_the_limit_is_closed_even_when_the_queue_is_full(scripted) -> None:
    server: ScriptedServer = scripted(batch=1, queue=1, connections=3)
    server.begin_blocked("hold", "crowd")
    server.begin_translate("second")
    wait_until(lambda: server.metric("queue_size") == 1)
    with closing(server.connect()):  # the third
        response = server.translate("one too many")
        assert (response.status, response.headers["connection"]) == (503, "close")
    server.release("crowd")


def test_refusal_is_the_same_with_and_without_the_parser(scripted) -> None:
    """Load shedding refuses a request sent in one piece, the application one sent in two. Both keep the connection."""
    server: ScriptedServer = scripted(batch=1, queue=1)
    server.begin_blocked("hold", "first")
    waiting = server.begin_translate("second")
    wait_until(lambda: server.metric("queue_size") == 1)
    length = {"Content-Length": str(len(BODY))}
    with closing(server.connect()) as connection:
        head = server.head("POST", "/translate", {**JSON, **length})
        connection.sendall(head + BODY)
        from_shedder = read_response(connection)
        connection.sendall(head)
        wait_until(lambda: server.get("/health").status == 200)
        connection.sendall(BODY)
        from_application = read_response(connection)
        assert from_shedder.status == from_application.status == 429
        assert from_shedder.body == from_application.body
        shedder_headers, application_headers = (
            {name.lower(): value for name, value in response.headers.items()}
            for response in (from_shedder, from_application)
        )
        assert shedder_headers.keys() == application_headers.keys()
        for name in shedder_headers.keys() - {"date", "x-request-id"}:
            assert shedder_headers[name] == application_headers[name]
        server.release("first")
        assert read_response(waiting).json() == {"translatedText": "SECOND"}
        connection.sendall(head + BODY)
        assert read_response(connection).json() == {"translatedText": "ONE"}
