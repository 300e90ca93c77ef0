"""What is turned away before it is parsed: only whole requests for work, and answered as the application would."""

from contextlib import closing

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.serve.errors import ApiError
from saccade.serve.load_shedding import LoadShedder, asks_for_work
from saccade.serve.metrics import Metrics
from serve.conftest import Faulty
from serve.wire import JSON, read_answer, until

BODY = b'{"q":"one","source":"en","target":"de"}'


def request(path: str = "/translate", more: str = "", body: bytes = BODY, method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def test_requests_for_work() -> None:
    for whole in (request(), request("/v1/translate"), request(more="Connection: keep-alive\r\n"), request(body=b"")):
        assert asks_for_work(whole)


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
        request(more="Content-Length: 39\r\n"),
        request(more="Transfer-Encoding: chunked\r\n"),
        request(more="Connection: close\r\n"),
        request(more="Expect: 100-continue\r\n"),
        request(more="Origin: https://example.org\r\n"),
        request().replace(b"1.1", b"1.0"),
        request().replace(b"Content-Length", b"Content-Size"),
        request().replace(b"Content-Length: ", b"Content-Length: +"),
        request()[:30],
        b"",
    ],
)
def test_what_only_a_parser_should_judge(other: bytes) -> None:
    assert not asks_for_work(other)


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
def test_a_parser_finds_the_same_request(headers: list[str], body: bytes, path: str) -> None:
    """Whatever is taken for one whole request is one, if it is valid at all."""
    head = "".join(f"{line}\r\n" for line in [f"POST {path} HTTP/1.1", "Host: localhost", *headers])
    data = head.encode() + b"\r\n" + body
    if not asks_for_work(data):
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
    assert parser.their_state is h11.DONE  # and the connection may be used again


def test_an_open_gate_lets_all_through() -> None:
    assert LoadShedder(lambda: None, Metrics()).refusal(request()) is None


def test_a_shut_gate_counts_what_it_turns_away() -> None:
    def shut() -> None:
        raise ApiError(503, "no", 7, "late")

    metrics = Metrics()
    gate = LoadShedder(shut, metrics)
    assert gate.refusal(request(method="GET")) is None
    assert gate.refusal(request("/v1/translate"))
    page = metrics.page().decode()
    assert 'saccade_requests_total{endpoint="/v1/translate",status="503"} 1.0' in page
    assert 'saccade_rejected_total{reason="late"} 1.0' in page


def test_a_connection_too_many_is_closed_even_when_the_queue_is_full(faulty) -> None:
    server: Faulty = faulty(batch=1, queue=1, connections=3)
    server.begin_work("hold", "crowd")
    server.begin_translate("second")
    until(lambda: server.metric("queue_size") == 1)
    with closing(server.connect()):  # the third
        answer = server.translate("one too many")
        assert (answer.status, answer.headers["connection"]) == (503, "close")
    server.release("crowd")


def test_a_full_queue_answers_alike_with_and_without_the_parser(faulty) -> None:
    """In one piece a request is turned away at once; in two it goes the long way. The connection lives on."""
    server: Faulty = faulty(batch=1, queue=1)
    server.begin_work("hold", "first")
    waiting = server.begin_translate("second")
    until(lambda: server.metric("queue_size") == 1)
    length = {"Content-Length": str(len(BODY))}
    with closing(server.connect()) as connection:
        head = server.head("POST", "/translate", {**JSON, **length})
        connection.sendall(head + BODY)
        whole = read_answer(connection)
        connection.sendall(head)
        until(lambda: server.get("/health").status == 200)
        connection.sendall(BODY)
        parted = read_answer(connection)
        assert whole.status == parted.status == 429
        assert whole.body == parted.body
        differ = {"date", "x-request-id"}
        kept = [{k.lower(): v for k, v in each.headers.items() if k.lower() not in differ} for each in (whole, parted)]
        assert kept[0] == kept[1]
        assert {name.lower() for name in whole.headers} == {name.lower() for name in parted.headers}
        server.release("first")
        assert read_answer(waiting).json() == {"translatedText": "SECOND"}
        connection.sendall(head + BODY)
        assert read_answer(connection).json() == {"translatedText": "ONE"}
