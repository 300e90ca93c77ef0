"""The queue: order, batches, refusals and cancellation, without models and threads."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from saccade.serve.errors import ApiError
from saccade.serve.metrics import Metrics
from saccade.serve.queue import Queue, QueuedRequest, TranslationOptions
from saccade.serve.settings import Settings
from saccade.serve.throughput import Throughput


def request(count: int, model: str = "a", alternatives: int = 0, size: int = 1) -> QueuedRequest:
    """A request of `count` sentences."""
    named: Any = SimpleNamespace(name=model)
    result: Any = None
    sentences = [f"s{i}" for i in range(count)]
    return QueuedRequest(named, TranslationOptions(alternatives), sentences, [size] * count, "", result)


def make_queue(throughput: Throughput | None = None, workers: int = 1, **settings: Any) -> Queue:
    return Queue(
        Settings(**{"batch": 4, "batch_wait": 0, "batch_time": 99.0, **settings}),
        workers,
        throughput or Throughput(),
        Metrics(),
    )


def queue_size(queue: Queue) -> float:
    return queue._metrics.queue_size._value.get()


def finish(queue: Queue, jobs: Any) -> list[QueuedRequest]:
    """Finish a batch; returns the requests that are complete."""
    delivered: list[QueuedRequest] = []
    for job in jobs:
        job.request.outputs[job.index] = []
    queue.finish(jobs, delivered.append)
    return delivered


def test_sentences_of_several_requests_share_a_batch() -> None:
    queue = make_queue()
    first, second = request(1), request(2)
    queue.submit(first)
    queue.submit(second)
    jobs = queue.take()
    assert [(job.request, job.index) for job in jobs] == [(first, 0), (second, 0), (second, 1)]


def test_batch_has_one_model_and_one_search_and_groups_alternate() -> None:
    queue = make_queue()
    for submitted in (request(5), request(1, "b"), request(1, alternatives=2)):
        queue.submit(submitted)
    batches = [[job.request.group for job in queue.take()] for _ in range(4)]
    assert batches == [[("a", 0)] * 4, [("b", 0)], [("a", 2)], [("a", 0)]]


def test_long_request_neither_delays_short_ones_nor_starves() -> None:
    queue = make_queue(batch=8)
    long, *short = request(100), *(request(4) for _ in range(4))
    for submitted in (long, *short):
        queue.submit(submitted)
    jobs = queue.take()
    assert sum(job.request is long for job in jobs) >= 4
    assert {job.request for job in jobs} >= {*short}


def test_batch_is_smaller_if_it_would_exceed_batch_time() -> None:
    throughput = Throughput()
    throughput.record("a", 4, 4, 1.0)
    for seconds, rows in ((1.0, 4), (0.5, 2), (0.01, 1)):
        queue = make_queue(throughput, batch_time=seconds)
        queue.submit(request(9))
        assert len(queue.take()) == rows


def test_full_queue_is_429_with_retry_after() -> None:
    queue = make_queue(queue=3)
    queue.submit(request(2))
    with pytest.raises(ApiError) as error:
        queue.submit(request(2))
    assert error.value.status == 429
    assert int(error.value.headers["retry-after"]) >= 1
    queue.submit(request(1))


def slow() -> Throughput:
    """One second per sentence."""
    throughput = Throughput()
    throughput.record("a", 1, 1, 1.0)
    return throughput


def test_request_that_would_miss_its_deadline_is_503() -> None:
    queue = make_queue(slow(), deadline=10.0, longest_wait=3.0)
    queue.submit(request(1))
    with pytest.raises(ApiError) as error:
        queue.submit(request(5))
    assert error.value.status == 503
    assert error.value.reason == "would_miss_deadline"
    assert error.value.headers["retry-after"] == "2"
    queue.submit(request(4))
    with pytest.raises(ApiError):
        queue.submit(request(4))
    finish(queue, queue.take())
    queue.submit(request(4))


def test_requests_over_longest_wait_are_refused() -> None:
    queue = make_queue(slow(), deadline=10.0, longest_wait=3.0)
    for _ in range(4):
        queue.submit(request(1))
    with pytest.raises(ApiError, match="the service is overloaded") as error:
        queue.submit(request(1))
    assert error.value.reason == "overloaded"


def test_waiting_long_text_does_not_block_short_requests() -> None:
    queue = make_queue(slow(), deadline=10.0, longest_wait=3.0, batch=2)
    queue.submit(request(100))
    queue.submit(request(1))
    queue.take()
    with pytest.raises(ApiError):
        queue.submit(request(100))


def test_idle_service_accepts_any_request_whatever_the_estimate() -> None:
    throughput = Throughput()
    throughput.record("a", 1, 1, 1000.0)
    queue = make_queue(throughput, deadline=10.0)
    queue.submit(request(1))
    with pytest.raises(ApiError):
        queue.submit(request(1))


def test_two_workers_halve_the_estimated_wait() -> None:
    for workers, refused in ((1, pytest.raises(ApiError)), (2, nullcontext())):
        queue = make_queue(slow(), workers, deadline=10.0)
        queue.submit(request(1))
        with refused:
            queue.submit(request(7))


def test_cancelled_request_leaves_the_queue() -> None:
    queue = make_queue(queue=5)
    cancelled, other = request(5), request(1)
    queue.submit(cancelled)
    jobs = queue.take()
    assert queue_size(queue) == 1
    queue.cancel(cancelled)
    queue.cancel(cancelled)
    assert queue_size(queue) == 0
    load = queue._loads["a"]
    assert (load.requests, load.waiting, load.running, load.size) == (0, 0, 4, 4)
    queue.submit(other)
    assert [job.request for job in queue.take()] == [other]
    assert not queue.empty
    assert finish(queue, jobs) == []


def test_request_is_delivered_once_when_all_sentences_are_finished() -> None:
    queue = make_queue()
    submitted = request(6)
    queue.submit(submitted)
    first, second = queue.take(), queue.take()
    assert finish(queue, first) == []
    assert not queue.empty
    assert finish(queue, second) == [submitted]
    assert queue.empty
    load = queue._loads["a"]
    assert (load.requests, load.waiting, load.running, load.size) == (0, 0, 0, 0)


def test_draining_queue_refuses_requests() -> None:
    queue = make_queue()
    queue.draining = True
    with pytest.raises(ApiError) as error:
        queue.submit(request(1))
    assert error.value.status == 503
    assert "retry-after" in error.value.headers


def test_closed_queue_returns_an_empty_batch() -> None:
    queue = make_queue()
    queue.close()
    assert queue.take() == []


def test_throughput_is_estimated_from_batches_of_similar_size() -> None:
    throughput = Throughput()
    assert throughput.seconds("a", 8, 100) == 0
    throughput.record("a", 1, 10, 1.0)
    throughput.record("a", 32, 320, 3.2)
    assert throughput.seconds("a", 1, 10) == pytest.approx(1.0)
    assert throughput.seconds("a", 30, 10) == pytest.approx(0.1)
    assert throughput.seconds("b", 1, 10) == 0
    throughput.record("a", 32, 320, 6.4)
    assert 0.1 < throughput.seconds("a", 32, 10) < 0.2
