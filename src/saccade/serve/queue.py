"""The queue of sentences, which forms micro-batches. Sentences of several requests share a batch if they need the same
model and the same search.

Scheduling: half of each batch goes to the oldest request, the other half to all requests in turn (round robin). So a
long text does not delay short ones, and short ones do not starve a long one. A request of n sentences is
finished after at most 2 × min(the time for n sentences of every waiting request, the time for all waiting sentences).
`submit` estimates this time and rejects a request that would miss its deadline.
"""

import asyncio
import math
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.decode.engine import Output
from saccade.serve.errors import ApiError, shutting_down
from saccade.serve.metrics import Metrics
from saccade.serve.models import ServedModel
from saccade.serve.settings import Settings
from saccade.serve.throughput import Throughput

DEADLINE_MESSAGE = "the request cannot be answered before its deadline; try again later or send less text"


@dataclass(frozen=True)
class TranslationOptions:
    """What a request asks for besides the best translation: the number of alternatives, alignments, attention."""

    alternatives: int = 0
    alignments: bool = False
    attention: bool = False


@dataclass(frozen=True)
class SentenceOutput:
    """One output for a sentence, with its word alignment and attention if the request asked for them."""

    output: Output
    alignment: list[tuple[int, int]] | None = None
    attention: dict[str, Any] | None = None


@dataclass(eq=False)
class QueuedRequest:
    """The sentences of one request, and the results as they come in."""

    model: ServedModel
    options: TranslationOptions
    sentences: Sequence[str]
    sizes: Sequence[int]  # of each sentence: (tokens + end symbol) × hypotheses
    request_id: str  # for the log
    result: "asyncio.Future[list[list[SentenceOutput]]]"
    submitted: float = field(default_factory=time.monotonic)
    taken: int = 0  # how many sentences workers have taken
    outputs: dict[int, list[SentenceOutput]] = field(default_factory=dict)  # sentence → outputs, best first
    open: bool = True  # a client still waits for the result

    @property
    def group(self) -> tuple[str, int]:
        """Requests of the same group can share a batch."""
        return self.model.name, self.options.alternatives

    def remaining(self) -> int:
        return len(self.sentences) - self.taken


@dataclass(frozen=True)
class SentenceJob:
    """One sentence of a batch."""

    request: QueuedRequest
    index: int

    @property
    def sentence(self) -> str:
        return self.request.sentences[self.index]

    @property
    def size(self) -> int:
        return self.request.sizes[self.index]


class _RequestGroup:
    """The waiting requests that can share a batch, by age and in round-robin order."""

    def __init__(self) -> None:
        self.by_age: OrderedDict[QueuedRequest, None] = OrderedDict()
        self.round_robin: deque[QueuedRequest] = deque()

    def add(self, request: QueuedRequest) -> None:
        self.by_age[request] = None
        self.round_robin.append(request)

    def remove(self, request: QueuedRequest) -> bool:
        """Remove a request; False if it is not in the group."""
        if request not in self.by_age:
            return False
        del self.by_age[request]
        self.round_robin.remove(request)
        return True

    def waiting(self) -> int:
        return sum(request.remaining() for request in self.by_age)

    def take(self, rows: int) -> list[SentenceJob]:
        """Take up to `rows` sentences, alternately of the oldest request and of the next in turn."""
        jobs: list[SentenceJob] = []
        while self.by_age and len(jobs) < rows:
            if len(jobs) % 2:
                self.round_robin.rotate(-1)
                request = self.round_robin[0]
            else:
                request = next(iter(self.by_age))
            jobs.append(SentenceJob(request, request.taken))
            request.taken += 1
            if not request.remaining():
                self.remove(request)
        return jobs


@dataclass
class _Load:
    """The load of one model: waiting requests, waiting sentences, sentences in running batches, and the total size of
    these sentences."""

    requests: int = 0
    waiting: int = 0
    running: int = 0
    size: int = 0

    def work_until(self, sentences_each: float) -> tuple[int, int]:
        """How many sentences, and of which total size, must be translated until every request has had `sentences_each`
        of its own. Running batches count half: on average they are half done."""
        rows = int(min(self.waiting, sentences_each * self.requests)) + -(-self.running // 2)
        return rows, rows * self.mean_size()

    def mean_size(self) -> int:
        return -(-self.size // max(1, self.waiting + self.running))


class Queue:
    """Connects the event loop, which submits and cancels requests, with the workers, which take batches."""

    def __init__(self, settings: Settings, workers: int, throughput: Throughput, metrics: Metrics):
        self._settings, self._workers, self._throughput, self._metrics = settings, workers, throughput, metrics
        self._change = threading.Condition()  # re-entrant: `submit` calls `check_capacity` while holding it
        self._groups: OrderedDict[tuple[str, int], _RequestGroup] = OrderedDict()
        self._loads: defaultdict[str, _Load] = defaultdict(_Load)  # by model name
        self._idle_workers = 0
        self._closed = False
        self.draining = False

    # ── called by the event loop ──

    def check_capacity(self, count: int = 1) -> None:
        """Refuse a request of `count` sentences if the queue has no room for it or is too slow at the moment."""
        if self.draining:
            raise shutting_down("draining")
        with self._change:
            wait = self._estimated_seconds(count)
            if self._waiting + count > self._settings.queue:
                raise ApiError(429, "the queue is full; try again later", wait, "queue_full")
            if wait > self._settings.longest_wait:
                longest = self._settings.longest_wait
                text = f"the service is overloaded: a new request would wait longer than {longest:g} s; try again later"
                raise ApiError(503, text, wait - longest, "overloaded")

    def submit(self, request: QueuedRequest) -> None:
        """Queue a request, or refuse it at once."""
        with self._change:
            count, was_empty = len(request.sentences), self.empty
            self.check_capacity(count)
            self._add_load(request)
            wait = 2 * min(self._estimated_seconds(math.inf), self._estimated_seconds(count))
            late = wait - self._settings.deadline
            # An idle service accepts every request: after one slow batch it would otherwise refuse all of them, and
            # never measure its speed again.
            if late > 0 and not was_empty:
                self._remove_load(request)
                raise ApiError(503, DEADLINE_MESSAGE, late, "would_miss_deadline")
            self._groups.setdefault(request.group, _RequestGroup()).add(request)
            self._change.notify_all()
        self._metrics.queue_size.set(self._waiting)

    def cancel(self, request: QueuedRequest) -> None:
        """Drop a request whose result is no longer needed. Repeated calls have no effect."""
        with self._change:
            request.open = False
            group = self._groups.get(request.group)
            if group and group.remove(request):
                self._remove_load(request)
        self._metrics.queue_size.set(self._waiting)

    def _add_load(self, request: QueuedRequest) -> None:
        load = self._loads[request.model.name]
        load.requests, load.waiting = load.requests + 1, load.waiting + request.remaining()
        load.size += sum(request.sizes[request.taken :])

    def _remove_load(self, request: QueuedRequest) -> None:
        load = self._loads[request.model.name]
        load.requests, load.waiting = load.requests - 1, load.waiting - request.remaining()
        load.size -= sum(request.sizes[request.taken :])

    def _estimated_seconds(self, sentences_each: float) -> float:
        """The time until `sentences_each` sentences of every request are translated, if all workers did only that."""
        total = 0.0
        for name, load in self._loads.items():
            rows, size = load.work_until(sentences_each)
            if rows:
                total += self._throughput.seconds(name, min(self._settings.batch, -(-rows // self._workers)), size)
        return total / self._workers

    @property
    def _waiting(self) -> int:
        return sum(load.waiting for load in self._loads.values())

    @property
    def empty(self) -> bool:
        """Whether no sentence waits and no batch is running."""
        return not any(load.waiting or load.running for load in self._loads.values())

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()

    # ── called by the workers ──

    def take(self) -> list[SentenceJob]:
        """Wait for a batch and take it; an empty list once the queue is closed."""
        with self._change:
            self._idle_workers += 1
            jobs: list[SentenceJob] = []
            while not jobs and not self._closed:
                self._change.wait_for(lambda: self._waiting or self._closed)
                self._change.wait_for(self._has_full_batch, self._settings.batch_wait)
                jobs = self._next_batch()  # empty if another worker was faster
            self._idle_workers -= 1
        self._metrics.queue_size.set(self._waiting)
        now = time.monotonic()
        for job in jobs:
            self._metrics.queue_wait.observe(now - job.request.submitted)
        return jobs

    def _has_full_batch(self) -> bool:
        return self._waiting >= self._settings.batch or self._closed

    def _next_batch(self) -> list[SentenceJob]:
        """A batch of the next group in turn. The idle workers share the waiting sentences of a group."""
        for key, group in list(self._groups.items()):
            if waiting := group.waiting():
                self._groups.move_to_end(key)
                model = key[0]
                load = self._loads[model]
                rows = min(self._settings.batch, -(-waiting // self._idle_workers))
                jobs = group.take(self._limit_rows(model, rows))
                load.waiting, load.running = load.waiting - len(jobs), load.running + len(jobs)
                load.requests -= sum(not request.remaining() for request in {job.request for job in jobs})
                return jobs
            del self._groups[key]
        return []

    def _limit_rows(self, model: str, rows: int) -> int:
        """`rows`, or fewer if such a batch would take longer than `batch_time`: later requests wait for it to end."""
        seconds = self._throughput.seconds(model, rows, rows * self._loads[model].mean_size())
        return rows if seconds <= self._settings.batch_time else max(1, int(rows * self._settings.batch_time / seconds))

    def finish(self, jobs: Sequence[SentenceJob], deliver: Callable[[QueuedRequest], None]) -> None:
        """Record that a batch is done, and call `deliver` for each request that now has all its outputs."""
        with self._change:
            load = self._loads[jobs[0].request.model.name]
            load.running, load.size = load.running - len(jobs), load.size - sum(job.size for job in jobs)
            for request in {job.request: None for job in jobs}:
                if request.open and len(request.outputs) == len(request.sentences):
                    request.open = False
                    deliver(request)
