"""Sentences that wait: who comes first, who is refused, who leaves. No model and no thread is needed for that."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from saccade.serve.errors import ApiError
from saccade.serve.metrics import Metrics
from saccade.serve.queue import Queue, QueuedRequest, TranslationOptions
from saccade.serve.settings import Settings
from saccade.serve.throughput import Throughput


def ticket(count: int, model: str = "a", alternatives: int = 0, size: int = 1) -> QueuedRequest:
    made: Any = SimpleNamespace(name=model)
    nobody: Any = None
    return QueuedRequest(
        made, TranslationOptions(alternatives), [f"s{i}" for i in range(count)], [size] * count, "", nobody
    )


def queue(pace: Throughput | None = None, workers: int = 1, **settings: Any) -> Queue:
    return Queue(
        Settings(**{"batch": 4, "batch_wait": 0, "batch_time": 99.0, **settings}),
        workers,
        pace or Throughput(),
        Metrics(),
    )


def size(of: Queue) -> float:
    return of._metrics.queue_size._value.get()


def finish(of: Queue, jobs: Any) -> list[QueuedRequest]:
    told: list[QueuedRequest] = []
    for job in jobs:
        job.ticket.found[job.index] = []
    of.finish(jobs, told.append)
    return told


def test_sentences_of_several_requests_go_into_one_batch() -> None:
    waiting = queue()
    first, second = ticket(1), ticket(2)
    waiting.submit(first)
    waiting.submit(second)
    jobs = waiting.take()
    assert [(job.request, job.index) for job in jobs] == [(first, 0), (second, 0), (second, 1)]


def test_a_batch_has_one_model_and_one_search_and_lines_take_turns() -> None:
    waiting = queue()
    for each in (ticket(5), ticket(1, "b"), ticket(1, alternatives=2)):
        waiting.submit(each)
    batches = [[job.request.group for job in waiting.take()] for _ in range(4)]
    assert batches == [[("a", 0)] * 4, [("b", 0)], [("a", 2)], [("a", 0)]]


def test_a_long_request_holds_up_no_short_one_and_is_not_starved_by_them() -> None:
    waiting = queue(batch=8)
    long, *short = ticket(100), *(ticket(4) for _ in range(4))
    for each in (long, *short):
        waiting.submit(each)
    jobs = waiting.take()
    assert sum(job.request is long for job in jobs) >= 4
    assert {job.request for job in jobs} >= {*short}


def test_a_batch_that_would_last_too_long_is_made_smaller() -> None:
    pace = Throughput()
    pace.record("a", 4, 4, 1.0)
    for seconds, rows in ((1.0, 4), (0.5, 2), (0.01, 1)):
        waiting = queue(pace, batch_time=seconds)
        waiting.submit(ticket(9))
        assert len(waiting.take()) == rows


def test_a_full_queue_refuses_at_once_and_says_when_to_come_again() -> None:
    waiting = queue(queue=3)
    waiting.submit(ticket(2))
    with pytest.raises(ApiError) as refusal:
        waiting.submit(ticket(2))
    assert refusal.value.status == 429
    assert int(refusal.value.headers["retry-after"]) >= 1
    waiting.submit(ticket(1))


def slow() -> Throughput:
    """A second for each sentence."""
    pace = Throughput()
    pace.record("a", 1, 1, 1.0)
    return pace


def test_what_cannot_be_in_time_is_refused_at_once() -> None:
    waiting = queue(slow(), deadline=10.0, longest_wait=3.0)
    waiting.submit(ticket(1))
    with pytest.raises(ApiError) as refusal:
        waiting.submit(ticket(5))
    assert refusal.value.status == 503
    assert refusal.value.headers["retry-after"] == "2"
    waiting.submit(ticket(4))
    with pytest.raises(ApiError):
        waiting.submit(ticket(4))
    finish(waiting, waiting.take())
    waiting.submit(ticket(4))


def test_no_more_are_taken_than_can_soon_be_served() -> None:
    waiting = queue(slow(), deadline=10.0, longest_wait=3.0)
    for _ in range(4):
        waiting.submit(ticket(1))
    with pytest.raises(ApiError):
        waiting.submit(ticket(1))


def test_a_long_text_does_not_keep_short_ones_out() -> None:
    waiting = queue(slow(), deadline=10.0, longest_wait=3.0, batch=2)
    waiting.submit(ticket(100))
    waiting.submit(ticket(1))
    waiting.take()
    with pytest.raises(ApiError):
        waiting.submit(ticket(100))


def test_an_idle_service_tries_everything_and_so_learns_its_pace_anew() -> None:
    pace = Throughput()
    pace.record("a", 1, 1, 1000.0)
    waiting = queue(pace, deadline=10.0)
    waiting.submit(ticket(1))
    with pytest.raises(ApiError):
        waiting.submit(ticket(1))


def test_two_workers_halve_the_wait() -> None:
    for workers, refused in ((1, pytest.raises(ApiError)), (2, nullcontext())):
        waiting = queue(slow(), workers, deadline=10.0)
        waiting.submit(ticket(1))
        with refused:
            waiting.submit(ticket(7))


def test_a_withdrawn_request_leaves_the_queue() -> None:
    waiting = queue(queue=5)
    gone, stays = ticket(5), ticket(1)
    waiting.submit(gone)
    jobs = waiting.take()
    assert size(waiting) == 1
    waiting.cancel(gone)
    waiting.cancel(gone)
    assert size(waiting) == 0
    load = waiting._loads["a"]
    assert (load.requests, load.waiting, load.working, load.size) == (0, 0, 4, 4)
    waiting.submit(stays)
    assert [job.request for job in waiting.take()] == [stays]
    assert not waiting.empty
    assert finish(waiting, jobs) == []


def test_a_request_is_told_once_all_its_sentences_are_found() -> None:
    waiting = queue()
    asked = ticket(6)
    waiting.submit(asked)
    first, second = waiting.take(), waiting.take()
    assert finish(waiting, first) == []
    assert not waiting.empty
    assert finish(waiting, second) == [asked]
    assert waiting.empty
    load = waiting._loads["a"]
    assert (load.requests, load.waiting, load.working, load.size) == (0, 0, 0, 0)


def test_nothing_is_taken_while_the_service_drains() -> None:
    waiting = queue()
    waiting.draining = True
    with pytest.raises(ApiError) as refusal:
        waiting.submit(ticket(1))
    assert refusal.value.status == 503
    assert "retry-after" in refusal.value.headers


def test_a_closed_queue_lets_its_workers_go() -> None:
    waiting = queue()
    waiting.close()
    assert waiting.take() == []


def test_the_pace_of_a_batch_is_that_of_batches_like_it() -> None:
    pace = Throughput()
    assert pace.seconds("a", 8, 100) == 0
    pace.record("a", 1, 10, 1.0)
    pace.record("a", 32, 320, 3.2)
    assert pace.seconds("a", 1, 10) == pytest.approx(1.0)
    assert pace.seconds("a", 30, 10) == pytest.approx(0.1)
    assert pace.seconds("b", 1, 10) == 0
    pace.record("a", 32, 320, 6.4)
    assert 0.1 < pace.seconds("a", 32, 10) < 0.2
