"""Failures of the model, a full queue, clients that disconnect, and texts that are slow to process."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from serve.conftest import ScriptedServer
from serve.http_client import Response, read_response, wait_until


def retry_after(response: Response) -> int:
    """The seconds of the Retry-After header of an error response."""
    assert response.error()
    seconds = response.headers["Retry-After"]
    assert seconds.isdigit()
    return int(seconds)


# ── the model ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def default_server(scripted) -> ScriptedServer:
    return scripted(batch_wait=0.2)


def test_model_exception_is_500_and_logged_under_its_request_id(default_server: ScriptedServer) -> None:
    """The log has the traceback under the request id of the response; the response has neither."""
    response = default_server.translate("crash")
    assert response.status == 500
    message = response.error()
    assert "secret" not in message
    assert "Traceback" not in message
    request_id = message.split()[-1]
    assert default_server.stderr
    log = default_server.stderr.read_text()
    assert request_id in log
    assert "a secret of the model" in log[log.index(request_id) :]
    assert default_server.translate("two").json() == {"translatedText": "TWO"}


@pytest.mark.parametrize("text", ["memory", "allocator"])
def test_out_of_memory_is_503_and_the_server_stays_up(default_server: ScriptedServer, text: str) -> None:
    response = default_server.translate(text)
    assert response.status == 503
    assert retry_after(response) >= 1
    assert default_server.translate("two").status == 200
    assert default_server.get("/livez").status == 200


def test_model_exception_fails_only_its_own_request(default_server: ScriptedServer) -> None:
    texts = ["one", "crash", "two", "memory", "three"]
    with ThreadPoolExecutor(len(texts)) as clients:
        responses = list(clients.map(default_server.translate, texts))
    assert [response.status for response in responses] == [200, 500, 200, 503, 200]
    assert [response.json()["translatedText"] for response in responses[::2]] == ["ONE", "TWO", "THREE"]


def test_one_failing_sentence_fails_its_whole_request(default_server: ScriptedServer) -> None:
    assert default_server.translate("One.\ncrash\nTwo.").status == 500
    assert default_server.metric("queue_size") == 0


def test_concurrent_requests_share_batches(default_server: ScriptedServer) -> None:
    before, batches = default_server.metric("batch_size_sum"), default_server.metric("batch_size_count")
    words = [f"word{number}" for number in range(16)]
    with ThreadPoolExecutor(len(words)) as clients:
        responses = [response.json()["translatedText"] for response in clients.map(default_server.translate, words)]
    assert responses == [word.upper() for word in words]
    assert default_server.metric("batch_size_sum") - before == 16
    assert default_server.metric("batch_size_count") - batches < 16


@pytest.mark.parametrize("command", ["hold", "stall"])
def test_stalled_model_is_503_and_recovers(scripted, command: str) -> None:
    """After the deadline the response is 503. A search that calls `should_continue` is then cancelled; one that does
    not makes /livez fail until the model returns."""
    server = scripted(batch=1, deadline=2, stall=1)
    response = server.translate(f"{command} first")
    assert response.status == 503
    assert retry_after(response) >= 1
    if command == "stall":
        wait_until(lambda: server.get("/livez").status == 503)
        assert server.get("/livez").error()
        assert server.translate("two").status == 503
        assert server.get("/health").status == 200
        server.release("first")
    wait_until(lambda: server.get("/livez").status == 200)
    wait_until(lambda: server.translate("two").status == 200)
    assert server.metric("queue_size") == 0


# ── the queue ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def small_queue(scripted) -> ScriptedServer:
    """A server with batches of one sentence and a queue of three."""
    return scripted(batch=1, queue=3, longest_wait=3000, deadline=6000)


def test_full_queue_refuses_with_retry_after_and_loses_no_request(small_queue: ScriptedServer) -> None:
    waiting = [small_queue.begin_blocked("hold", "full")]
    waiting += [small_queue.begin_translate(f"w{number}") for number in range(3)]
    wait_until(lambda: small_queue.metric("queue_size") == 3)
    for _ in range(20):
        response = small_queue.translate("four")
        assert response.status in (429, 503)
        assert retry_after(response) >= 1
    assert small_queue.get("/health").status == 200
    small_queue.release("full")
    responses = [read_response(connection) for connection in waiting]
    assert [response.status for response in responses] == [200] * 4
    assert [response.json()["translatedText"] for response in responses[1:]] == ["W0", "W1", "W2"]
    assert small_queue.metric("queue_size") == 0
    assert small_queue.metric("rejected_total") >= 20
    assert small_queue.translate("five").status == 200


def test_disconnected_clients_leave_the_queue(small_queue: ScriptedServer) -> None:
    first = small_queue.begin_blocked("hold", "leave")
    for _ in range(3):
        waiting = [small_queue.begin_translate("stall never") for _ in range(3)]
        wait_until(lambda: small_queue.metric("queue_size") == 3)
        for connection in waiting:
            connection.close()
        wait_until(lambda: small_queue.metric("queue_size") == 0)
    small_queue.release("leave")
    assert read_response(first).status == 200
    assert small_queue.translate("two").status == 200  # a "stall never" in a batch would block this


def test_search_is_cancelled_when_its_client_disconnects(small_queue: ScriptedServer) -> None:
    for number in range(3):
        small_queue.begin_blocked("hold", f"left{number}").close()
    assert small_queue.translate("two").status == 200
    assert small_queue.get("/livez").status == 200


def test_more_sentences_than_the_queue_holds_are_refused(small_queue: ScriptedServer) -> None:
    response = small_queue.translate("One.\nTwo.\nThree.\nFour.")
    assert response.status in (413, 429)
    assert small_queue.translate("One.\nTwo.\nThree.").status == 200


def test_request_past_its_deadline_leaves_the_queue(scripted) -> None:
    server = scripted(batch=1, deadline=1, longest_wait=3000, stall=60)
    server.begin_blocked("stall", "long")
    response = server.translate("stall never")
    assert response.status == 503
    assert retry_after(response) >= 1
    assert server.metric("queue_size") == 0
    server.release("long")
    wait_until(lambda: server.translate("two").status == 200)


def test_idle_service_accepts_a_request_after_a_very_slow_batch() -> None:
    """The machine was suspended for two minutes in a batch, so the throughput estimate is far too low. With an empty
    queue the next request is accepted all the same, so that its batch can correct the estimate; a second one is
    refused."""
    from saccade.serve.errors import ApiError
    from saccade.serve.metrics import Metrics
    from saccade.serve.queue import Queue, QueuedRequest, TranslationOptions
    from saccade.serve.settings import Settings
    from saccade.serve.throughput import Throughput
    from serve.scripted_server import ScriptedModel

    model: Any = ScriptedModel(Path())
    throughput = Throughput()
    throughput.record(model.name, 1, 10, 0.01)
    throughput.record(model.name, 1, 10, 120.0)
    queue = Queue(Settings(), 1, throughput, Metrics())
    result: Any = None  # there are no workers
    queue.submit(QueuedRequest(model, TranslationOptions(), ["one"], [20], "", result))
    with pytest.raises(ApiError, match="would wait longer than 3 s"):
        queue.submit(QueuedRequest(model, TranslationOptions(), ["two"], [20], "", result))


def test_white_space_and_line_breaks_are_kept(default_server: ScriptedServer) -> None:
    text = "  One.  Two!\n\n\tthree\r\nfour \u2028 five\n "
    assert default_server.translate(text).json()["translatedText"] == text.upper()
    texts = ["", " ", "\n", "a", "b\n\nc"]
    response = default_server.post("/translate", {"q": texts, "source": "en", "target": "de"})
    assert response.json()["translatedText"] == [text.upper() for text in texts]
    assert default_server.post("/translate", {"q": [], "source": "en", "target": "de"}).json()["translatedText"] == []


SLOW_TEXTS = {
    "spaces": "a" + " " * 400_000 + "b",
    "no-break spaces": "\u00a0" * 400_000,
    "stops": "." * 400_000,
    "marks": "!?" * 200_000,
    "initials": "A." * 200_000,
    "ends": "a" + "\n" * 400_000 + "b",
    "brackets": "." + ")" * 400_000,
}
SLOW_MARKUP = {
    "tags": "<a " * 100_000,
    "slashes": "<a/" * 100_000,
    "quotes": "<a b='" * 70_000,
    "comments": "<!--" * 100_000,
    "ends": "</" * 200_000,
    "less": "<" * 400_000,
    "ampersands": "&" * 400_000,
    "declarations": "<!x" * 100_000,
    "scripts": "<script>" * 50_000,
}


@pytest.fixture(scope="module")
def high_limits(scripted) -> ScriptedServer:
    """A server with limits so high that code of quadratic time would not finish."""
    return scripted(characters=1_000_000, body_bytes=8_000_000, queue=1_000_000, longest_wait=3000, deadline=50)


@pytest.mark.parametrize("name", SLOW_TEXTS)
def test_splitting_takes_linear_time(high_limits: ScriptedServer, name: str) -> None:
    """Splitting takes linear time; otherwise this test would time out."""
    assert high_limits.translate(SLOW_TEXTS[name]).status in (200, 413, 429, 503)
    assert high_limits.translate("two").status == 200


@pytest.mark.parametrize("name", SLOW_MARKUP)
def test_markup_parsing_takes_linear_time(high_limits: ScriptedServer, name: str) -> None:
    body = {"q": SLOW_MARKUP[name], "source": "en", "target": "de", "format": "html"}
    assert high_limits.post("/translate", body).status in (200, 413, 429, 503)
    assert high_limits.translate("two").status == 200


def test_html_tags_are_kept(default_server: ScriptedServer) -> None:
    text = '<p class="x">one &amp; <b>two</b><br/><script>three</script></p>'
    response = default_server.post("/translate", {"q": text, "source": "en", "target": "de", "format": "html"})
    expected = '<p class="x">ONE &amp; <b>TWO</b><br/><script>three</script></p>'
    assert response.json() == {"translatedText": expected}, json.dumps(response.json())
