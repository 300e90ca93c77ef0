"""The threads that call the models. Whatever happens in a call, the thread lives and its clients are told."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import torch

from saccade.decode.engine import Abandoned, Output
from saccade.serve.log import log_failure
from saccade.serve.metrics import Metrics
from saccade.serve.pace import Pace
from saccade.serve.queue import Found, Job, Queue, Ticket
from saccade.serve.refusals import Refused, crashed

MOST = 4  # they share one interpreter, which hands out operations one at a time


def how_many() -> int:
    """One for each thread that torch may use: two small batches side by side beat one batch on two threads."""
    return min(torch.get_num_threads(), MOST)


class Worker:
    """One thread, which takes batches until the queue is closed."""

    def __init__(self, queue: Queue, pace: Pace, metrics: Metrics, loop: asyncio.AbstractEventLoop, threads: int):
        self._queue, self._pace, self._metrics, self._loop, self._threads = queue, pace, metrics, loop, threads
        self._moved: float | None = None  # when its model last showed that it is alive, if it is at work
        threading.Thread(target=self._work, name="translate", daemon=True).start()

    def stalled(self, seconds: float) -> bool:
        """Whether it has been at one step of a model for longer than this."""
        moved = self._moved
        return moved is not None and time.monotonic() - moved > seconds

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while jobs := self._queue.take():
            self._moved = time.monotonic()
            self._translate(jobs)
            self._moved = None
            self._queue.finish(jobs, self._tell)

    def _translate(self, jobs: Sequence[Job]) -> None:
        """A batch; if it fails, each of its sentences alone, so that one cannot take others down with it."""
        try:
            self._measured(jobs)
        except Abandoned:
            pass
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._translate([job])
            else:
                self._fail(jobs[0].ticket, error)

    def _measured(self, jobs: Sequence[Job]) -> None:
        began = time.monotonic()
        model, wish = jobs[0].ticket.model, jobs[0].ticket.wish
        found = model.find([job.sentence for job in jobs], wish.alternatives, self._going(jobs))
        self._pace.learn(model.name, len(jobs), sum(job.size for job in jobs), time.monotonic() - began)
        self._metrics.batch_size.observe(len(jobs))
        for job, outputs in zip(jobs, found, strict=True):
            self._metrics.tokens.labels("written").inc(len(outputs[0].ids))
            if job.ticket.open:
                self._moved = time.monotonic()
                job.ticket.found[job.index] = [_complete(job, output) for output in outputs]

    def _going(self, jobs: Sequence[Job]) -> Callable[[], bool]:
        def going() -> bool:
            self._moved = time.monotonic()
            return any(job.ticket.open for job in jobs)

        return going

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        log_failure(ticket.number, error)
        refusal = crashed(ticket.number)
        if _is_memory(error):
            refusal = Refused(503, "not enough memory for this request; send less", 1, "memory")
        self._queue.withdraw(ticket)
        self._in_loop(lambda: ticket.done.done() or ticket.done.set_exception(refusal))

    def _tell(self, ticket: Ticket) -> None:
        found = [ticket.found[index] for index in range(len(ticket.sentences))]
        self._in_loop(lambda: ticket.done.done() or ticket.done.set_result(found))

    def _in_loop(self, call: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)


def _complete(job: Job, output: Output) -> Found:
    """With what was wished for beside the output."""
    wish, model = job.ticket.wish, job.ticket.model
    return Found(
        output,
        model.links(job.sentence, output.text) if wish.links else None,
        model.attention(job.sentence, output.text) if wish.attention else None,
    )


def _is_memory(error: Exception) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
