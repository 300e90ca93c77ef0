"""What goes wrong inside and outside, on purpose: the model, the queue, clients that leave."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from serve.conftest import Faulty
from serve.wire import Answer, read_answer, until


def retry_after(answer: Answer) -> int:
    """Whole seconds, after checking that an error comes with them."""
    assert answer.error()
    seconds = answer.headers["Retry-After"]
    assert seconds.isdigit()
    return int(seconds)


# ── the model ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def plain(faulty) -> Faulty:
    return faulty(batch_wait=0.2)


def test_a_model_that_crashes(plain: Faulty) -> None:
    """C3 36: 500 with an id, under which the log tells more; no stack and no secret for the client."""
    answer = plain.translate("crash")
    assert answer.status == 500
    said = answer.error()
    assert "secret" not in said
    assert "Traceback" not in said
    number = said.split()[-1]
    assert plain.said
    log = plain.said.read_text()
    assert number in log
    assert "a secret of the model" in log[log.index(number) :]
    assert plain.translate("two").json() == {"translatedText": "TWO"}


@pytest.mark.parametrize("text", ["memory", "allocator"])
def test_no_memory(plain: Faulty, text: str) -> None:
    """C3 17: that request is told to come back, and the server lives."""
    answer = plain.translate(text)
    assert answer.status == 503
    assert retry_after(answer) >= 1
    assert plain.translate("two").status == 200
    assert plain.get("/livez").status == 200


def test_a_crash_takes_nobody_else_down(plain: Faulty) -> None:
    """C3 36: sentences of others in the same batch are translated all the same."""
    texts = ["one", "crash", "two", "memory", "three"]
    with ThreadPoolExecutor(len(texts)) as clients:
        answers = list(clients.map(plain.translate, texts))
    assert [answer.status for answer in answers] == [200, 500, 200, 503, 200]
    assert [answer.json()["translatedText"] for answer in answers[::2]] == ["ONE", "TWO", "THREE"]


def test_one_sentence_of_many_that_crashes(plain: Faulty) -> None:
    assert plain.translate("One.\ncrash\nTwo.").status == 500
    assert plain.metric("queue_size") == 0


def test_concurrent_requests_share_a_batch(plain: Faulty) -> None:
    """The service: micro-batches, and everyone gets his own answer."""
    before, batches = plain.metric("batch_size_sum"), plain.metric("batch_size_count")
    words = [f"word{number}" for number in range(16)]
    with ThreadPoolExecutor(len(words)) as clients:
        answers = [answer.json()["translatedText"] for answer in clients.map(plain.translate, words)]
    assert answers == [word.upper() for word in words]
    assert plain.metric("batch_size_sum") - before == 16
    assert plain.metric("batch_size_count") - batches < 16


@pytest.mark.parametrize("order", ["hold", "stall"])
def test_a_model_that_stalls(faulty, order: str) -> None:
    """C3 36: the deadline answers, the watchdog tells; and when the model moves again, all is well again.

    A model that holds still asks whether to go on, and so is told to stop: only one that does not even ask stalls."""
    server = faulty(batch=1, deadline=2, stall=1)
    answer = server.translate(f"{order} first")
    assert answer.status == 503
    assert retry_after(answer) >= 1
    if order == "stall":
        until(lambda: server.get("/livez").status == 503)
        assert server.get("/livez").error()
        assert server.translate("two").status == 503
        assert server.get("/health").status == 200
        server.release("first")
    until(lambda: server.get("/livez").status == 200)
    until(lambda: server.translate("two").status == 200)
    assert server.metric("queue_size") == 0


# ── the queue ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def narrow(faulty) -> Faulty:
    """One sentence at a time, three that wait."""
    return faulty(batch=1, queue=3, longest_wait=3000, deadline=6000)


def test_a_full_queue(narrow: Faulty) -> None:
    """C3 31: what cannot wait is told at once when to come back; what waits is not lost."""
    waiting = [narrow.begin_work("hold", "full")]
    waiting += [narrow.begin_translate(f"w{number}") for number in range(3)]
    until(lambda: narrow.metric("queue_size") == 3)
    for _ in range(20):
        answer = narrow.translate("four")
        assert answer.status in (429, 503)
        assert retry_after(answer) >= 1
    assert narrow.get("/health").status == 200
    narrow.release("full")
    answers = [read_answer(connection) for connection in waiting]
    assert [answer.status for answer in answers] == [200] * 4
    assert [answer.json()["translatedText"] for answer in answers[1:]] == ["W0", "W1", "W2"]
    assert narrow.metric("queue_size") == 0
    assert narrow.metric("rejected_total") >= 20
    assert narrow.translate("five").status == 200


def test_clients_that_leave_while_they_wait(narrow: Faulty) -> None:
    """C3 33: their places are free again, and their texts are never translated."""
    first = narrow.begin_work("hold", "leave")
    for _ in range(3):
        waiting = [narrow.begin_translate("stall never") for _ in range(3)]
        until(lambda: narrow.metric("queue_size") == 3)
        for connection in waiting:
            connection.close()
        until(lambda: narrow.metric("queue_size") == 0)
    narrow.release("leave")
    assert read_answer(first).status == 200
    assert narrow.translate("two").status == 200  # it would never come if one of them were translated


def test_a_client_that_leaves_while_its_text_is_translated(narrow: Faulty) -> None:
    """C3 33: the search is abandoned, and the model is free."""
    for number in range(3):
        narrow.begin_work("hold", f"left{number}").close()
    assert narrow.translate("two").status == 200
    assert narrow.get("/livez").status == 200


def test_a_request_with_more_sentences_than_can_ever_wait(narrow: Faulty) -> None:
    answer = narrow.translate("One.\nTwo.\nThree.\nFour.")
    assert answer.status in (413, 429)
    assert narrow.translate("One.\nTwo.\nThree.").status == 200


def test_the_deadline_in_the_queue(faulty) -> None:
    """C3 31: who waits for too long is told so, and does not come into work any more."""
    server = faulty(batch=1, deadline=1, longest_wait=3000, stall=60)
    server.begin_work("stall", "long")
    answer = server.translate("stall never")
    assert answer.status == 503
    assert retry_after(answer) >= 1
    assert server.metric("queue_size") == 0
    server.release("long")
    until(lambda: server.translate("two").status == 200)


def test_a_hiccup_does_not_shut_the_service_for_ever() -> None:
    """C3 31: the machine slept for two minutes in the middle of a batch. Nobody waits, so the next request is taken,
    and from it the service learns how fast it really is."""
    from saccade.serve.errors import ApiError
    from saccade.serve.metrics import Metrics
    from saccade.serve.queue import Queue, QueuedRequest, TranslationOptions
    from saccade.serve.settings import Settings
    from saccade.serve.throughput import Throughput
    from serve.faulty import Obedient

    model: Any = Obedient(Path())
    pace = Throughput()
    pace.record(model.name, 1, 10, 0.01)
    pace.record(model.name, 1, 10, 120.0)
    queue = Queue(Settings(), 1, pace, Metrics())
    answer: Any = None  # nobody works here
    queue.submit(QueuedRequest(model, TranslationOptions(), ["one"], [20], "", answer))
    with pytest.raises(ApiError, match="in time"):
        queue.submit(QueuedRequest(model, TranslationOptions(), ["two"], [20], "", answer))


def test_white_space_and_line_breaks_stay(plain: Faulty) -> None:
    """The service: long text is taken apart and put together again."""
    text = "  One.  Two!\n\n\tthree\r\nfour \u2028 five\n "
    assert plain.translate(text).json()["translatedText"] == text.upper()
    many = ["", " ", "\n", "a", "b\n\nc"]
    answer = plain.post("/translate", {"q": many, "source": "en", "target": "de"})
    assert answer.json()["translatedText"] == [each.upper() for each in many]
    assert plain.post("/translate", {"q": [], "source": "en", "target": "de"}).json()["translatedText"] == []


HOSTILE = {
    "spaces": "a" + " " * 400_000 + "b",
    "no-break spaces": "\u00a0" * 400_000,
    "stops": "." * 400_000,
    "marks": "!?" * 200_000,
    "initials": "A." * 200_000,
    "ends": "a" + "\n" * 400_000 + "b",
    "brackets": "." + ")" * 400_000,
}
HOSTILE_MARKUP = {
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
def roomy(faulty) -> Faulty:
    """Limits so far away that whatever takes the square of a length does not end."""
    return faulty(characters=1_000_000, body=8_000_000, queue=1_000_000, longest_wait=3000, deadline=50)


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_that_are_slow_to_take_apart(roomy: Faulty, name: str) -> None:
    """C3 29: taking a text apart takes time in proportion to its length, or a test would wait in vain."""
    assert roomy.translate(HOSTILE[name]).status in (200, 413, 429, 503)
    assert roomy.translate("two").status == 200


@pytest.mark.parametrize("name", HOSTILE_MARKUP)
def test_markup_that_is_slow_to_take_apart(roomy: Faulty, name: str) -> None:
    """C3 29."""
    body = {"q": HOSTILE_MARKUP[name], "source": "en", "target": "de", "format": "html"}
    assert roomy.post("/translate", body).status in (200, 413, 429, 503)
    assert roomy.translate("two").status == 200


def test_markup_stays(plain: Faulty) -> None:
    """Conventions B4: in the format html tags are kept and text is translated."""
    text = '<p class="x">one &amp; <b>two</b><br/><script>three</script></p>'
    answer = plain.post("/translate", {"q": text, "source": "en", "target": "de", "format": "html"})
    expected = '<p class="x">ONE &amp; <b>TWO</b><br/><script>three</script></p>'
    assert answer.json() == {"translatedText": expected}, json.dumps(answer.json())
