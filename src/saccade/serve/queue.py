"""Sentences that wait for a model. Those of many requests go into one batch if they ask for the same search.

Half of each batch belongs to the oldest request, the other half goes round all requests: a long text cannot hold up
a short one, and short ones cannot starve a long one. So a request of n sentences is done when half of the models' time
has sufficed either for all that waits, or for n sentences of each request. Who cannot be in time is refused at once.
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
from saccade.serve.errors import ApiError
from saccade.serve.metrics import Metrics
from saccade.serve.models import ServedModel
from saccade.serve.settings import Settings
from saccade.serve.throughput import Throughput

TOO_LATE = "the request could not be answered in time; try again later or send less"


@dataclass(frozen=True)
class TranslationOptions:
    """What is wanted beside the best translation."""

    alternatives: int = 0
    links: bool = False
    attention: bool = False


@dataclass(frozen=True)
class SentenceOutput:
    """One output for a sentence, with what was wished for beside it."""

    output: Output
    links: list[tuple[int, int]] | None = None
    attention: dict[str, Any] | None = None


@dataclass(eq=False)
class QueuedRequest:
    """The sentences of one request. `number` is the request's, for the log."""

    model: ServedModel
    options: TranslationOptions
    sentences: Sequence[str]
    sizes: Sequence[int]  # tokens of each sentence, times the hypotheses that are held
    request_id: str
    done: "asyncio.Future[list[list[SentenceOutput]]]"
    began: float = field(default_factory=time.monotonic)
    taken: int = 0
    found: dict[int, list[SentenceOutput]] = field(default_factory=dict)  # outputs of each sentence, best first
    open: bool = True

    @property
    def group(self) -> tuple[str, int]:
        """Tickets of the same line can be translated together."""
        return self.model.name, self.options.alternatives

    def left(self) -> int:
        return len(self.sentences) - self.taken


@dataclass(frozen=True)
class SentenceJob:
    """One sentence that a worker has taken."""

    request: QueuedRequest
    index: int

    @property
    def sentence(self) -> str:
        return self.request.sentences[self.index]

    @property
    def size(self) -> int:
        return self.request.sizes[self.index]


class _RequestGroup:
    """Tickets that ask for the same search: by age, and in turn."""

    def __init__(self) -> None:
        self.by_age: OrderedDict[QueuedRequest, None] = OrderedDict()
        self.turns: deque[QueuedRequest] = deque()

    def add(self, ticket: QueuedRequest) -> None:
        self.by_age[ticket] = None
        self.turns.append(ticket)

    def remove(self, ticket: QueuedRequest) -> bool:
        """Whether it was there."""
        if ticket not in self.by_age:
            return False
        del self.by_age[ticket]
        self.turns.remove(ticket)
        return True

    def waiting(self) -> int:
        return sum(ticket.left() for ticket in self.by_age)

    def take(self, rows: int) -> list[SentenceJob]:
        jobs: list[SentenceJob] = []
        while self.by_age and len(jobs) < rows:
            if len(jobs) % 2:
                self.turns.rotate(-1)
                ticket = self.turns[0]
            else:
                ticket = next(iter(self.by_age))
            jobs.append(SentenceJob(ticket, ticket.taken))
            ticket.taken += 1
            if not ticket.left():
                self.remove(ticket)
        return jobs


@dataclass
class _Load:
    """What one model has to do: requests and sentences that wait, sentences in work, and the sizes of both together."""

    requests: int = 0
    waiting: int = 0
    working: int = 0
    size: int = 0

    def ahead(self, each: float) -> tuple[int, int]:
        """How many sentences are done, and of what size, by the time that every request has had `each` of them."""
        rows = int(min(self.waiting, each * self.requests)) + -(-self.working // 2)  # half of the work is done already
        return rows, rows * self.mean_size()

    def mean_size(self) -> int:
        return -(-self.size // max(1, self.waiting + self.working))


class Queue:
    """Between the event loop, which submits and withdraws, and the workers, which take batches."""

    def __init__(self, settings: Settings, workers: int, pace: Throughput, metrics: Metrics):
        self._settings, self._workers, self._throughput, self._metrics = settings, workers, pace, metrics
        self._change = threading.Condition()  # whose lock may be taken again by its holder
        self._lines: OrderedDict[tuple[str, int], _RequestGroup] = OrderedDict()
        self._loads: defaultdict[str, _Load] = defaultdict(_Load)  # by model
        self._idle = 0  # workers
        self._closed = False
        self.draining = False

    # ── the event loop's side ──

    def check_capacity(self, count: int = 1) -> None:
        """Refuse a request of so many sentences, or of any, if there is no room for it."""
        if self.draining:
            raise ApiError(503, "the service is shutting down", 1, "draining")
        with self._change:
            before = self._seconds(count)
            if self._waiting + count > self._settings.queue:
                raise ApiError(429, "too many requests wait; try again later", before, "full")
            if before > self._settings.longest_wait:
                raise ApiError(503, TOO_LATE, before - self._settings.longest_wait, "late")

    def submit(self, ticket: QueuedRequest) -> None:
        """Let it wait, or refuse it at once."""
        with self._change:
            count, idle = len(ticket.sentences), self.empty
            self.check_capacity(count)
            self._enter(ticket)
            late = 2 * min(self._seconds(math.inf), self._seconds(count)) - self._settings.deadline
            if late > 0 and not idle:  # an idle service tries everything, else one slow batch would close it for good
                self._leave(ticket)
                raise ApiError(503, TOO_LATE, late, "late")
            self._lines.setdefault(ticket.group, _RequestGroup()).add(ticket)
            self._change.notify_all()
        self._metrics.queue_size.set(self._waiting)

    def cancel(self, ticket: QueuedRequest) -> None:
        """Nobody waits for it any more."""
        with self._change:
            ticket.open = False
            line = self._lines.get(ticket.group)
            if line and line.remove(ticket):
                self._leave(ticket)
        self._metrics.queue_size.set(self._waiting)

    def _enter(self, ticket: QueuedRequest) -> None:
        load = self._loads[ticket.model.name]
        load.requests, load.waiting = load.requests + 1, load.waiting + ticket.left()
        load.size += sum(ticket.sizes[ticket.taken :])

    def _leave(self, ticket: QueuedRequest) -> None:
        load = self._loads[ticket.model.name]
        load.requests, load.waiting = load.requests - 1, load.waiting - ticket.left()
        load.size -= sum(ticket.sizes[ticket.taken :])

    def _seconds(self, each: float) -> float:
        """Until every request has had `each` sentences translated, if all the models' time were theirs."""
        total = 0.0
        for name, load in self._loads.items():
            rows, size = load.ahead(each)
            if rows:
                total += self._throughput.seconds(name, min(self._settings.batch, -(-rows // self._workers)), size)
        return total / self._workers

    @property
    def _waiting(self) -> int:
        return sum(load.waiting for load in self._loads.values())

    @property
    def empty(self) -> bool:
        """Whether nothing waits and nothing is in work."""
        return not any(load.waiting or load.working for load in self._loads.values())

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()

    # ── the workers' side ──

    def take(self) -> list[SentenceJob]:
        """Wait for a batch; nothing once the queue is closed."""
        with self._change:
            self._idle += 1
            jobs: list[SentenceJob] = []
            while not jobs and not self._closed:
                self._change.wait_for(lambda: self._waiting or self._closed)
                self._change.wait_for(self._enough, self._settings.batch_wait)
                jobs = self._next()  # nothing, if another worker was quicker
            self._idle -= 1
        self._metrics.queue_size.set(self._waiting)
        now = time.monotonic()
        for job in jobs:
            self._metrics.queue_wait.observe(now - job.request.began)
        return jobs

    def _enough(self) -> bool:
        return self._waiting >= self._settings.batch or self._closed

    def _next(self) -> list[SentenceJob]:
        """A batch of the next line in turn; idle workers share what waits in it."""
        for name, line in list(self._lines.items()):
            if waiting := line.waiting():
                self._lines.move_to_end(name)
                load = self._loads[name[0]]
                jobs = line.take(self._limit_rows(name[0], min(self._settings.batch, -(-waiting // self._idle))))
                load.waiting, load.working = load.waiting - len(jobs), load.working + len(jobs)
                load.requests -= sum(not ticket.left() for ticket in {job.request for job in jobs})
                return jobs
            del self._lines[name]
        return []

    def _limit_rows(self, model: str, rows: int) -> int:
        """So many rows, or fewer if the batch would last too long for those who come next."""
        seconds = self._throughput.seconds(model, rows, rows * self._loads[model].mean_size())
        return rows if seconds <= self._settings.batch_time else max(1, int(rows * self._settings.batch_time / seconds))

    def finish(self, jobs: Sequence[SentenceJob], say: Callable[[QueuedRequest], None]) -> None:
        """A worker has done with these; `say` is called for each ticket that now has all it waited for."""
        with self._change:
            load = self._loads[jobs[0].request.model.name]
            load.working, load.size = load.working - len(jobs), load.size - sum(job.size for job in jobs)
            for ticket in {job.request: None for job in jobs}:
                if ticket.open and len(ticket.found) == len(ticket.sentences):
                    ticket.open = False
                    say(ticket)
