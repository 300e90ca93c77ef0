"""The threads that call the models. Whatever happens in a call, the thread lives and its clients are told."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import torch

from saccade.decode.engine import Cancelled, Output
from saccade.serve.errors import ApiError, internal_error
from saccade.serve.log import log_failure
from saccade.serve.metrics import Metrics
from saccade.serve.queue import Queue, QueuedRequest, SentenceJob, SentenceOutput
from saccade.serve.throughput import Throughput

MAX_SERVICE_WORKERS = 4  # they share one interpreter, which hands out operations one at a time


def worker_count() -> int:
    """One for each thread that torch may use: two small batches side by side beat one batch on two threads."""
    return min(torch.get_num_threads(), MAX_SERVICE_WORKERS)


class Worker:
    """One thread, which takes batches until the queue is closed."""

    def __init__(self, queue: Queue, pace: Throughput, metrics: Metrics, loop: asyncio.AbstractEventLoop, threads: int):
        self._queue, self._throughput, self._metrics, self._loop, self._threads = queue, pace, metrics, loop, threads
        self._last_progress: float | None = None  # when its model last showed that it is alive, if it is at work
        threading.Thread(target=self._work, name="translate", daemon=True).start()

    def stalled(self, seconds: float) -> bool:
        """Whether it has been at one step of a model for longer than this."""
        moved = self._last_progress
        return moved is not None and time.monotonic() - moved > seconds

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while jobs := self._queue.take():
            self._last_progress = time.monotonic()
            self._translate(jobs)
            self._last_progress = None
            self._queue.finish(jobs, self._deliver)

    def _translate(self, jobs: Sequence[SentenceJob]) -> None:
        """A batch; if it fails, each of its sentences alone, so that one cannot take others down with it."""
        try:
            self._measured(jobs)
        except Cancelled:
            pass
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._translate([job])
            else:
                self._fail(jobs[0].request, error)

    def _measured(self, jobs: Sequence[SentenceJob]) -> None:
        began = time.monotonic()
        model, wish = jobs[0].request.model, jobs[0].request.options
        found = model.generate([job.sentence for job in jobs], wish.alternatives, self._going(jobs))
        self._throughput.record(model.name, len(jobs), sum(job.size for job in jobs), time.monotonic() - began)
        self._metrics.batch_size.observe(len(jobs))
        for job, outputs in zip(jobs, found, strict=True):
            self._metrics.tokens.labels("written").inc(len(outputs[0].ids))
            if job.request.open:
                self._last_progress = time.monotonic()
                job.request.found[job.index] = [_complete(job, output) for output in outputs]

    def _going(self, jobs: Sequence[SentenceJob]) -> Callable[[], bool]:
        def going() -> bool:
            self._last_progress = time.monotonic()
            return any(job.request.open for job in jobs)

        return going

    def _fail(self, ticket: QueuedRequest, error: Exception) -> None:
        log_failure(ticket.request_id, error)
        refusal = internal_error(ticket.request_id)
        if _is_memory(error):
            refusal = ApiError(503, "not enough memory for this request; send less", 1, "memory")
        self._queue.cancel(ticket)
        self._in_loop(lambda: ticket.done.done() or ticket.done.set_exception(refusal))

    def _deliver(self, ticket: QueuedRequest) -> None:
        found = [ticket.found[index] for index in range(len(ticket.sentences))]
        self._in_loop(lambda: ticket.done.done() or ticket.done.set_result(found))

    def _in_loop(self, call: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)


def _complete(job: SentenceJob, output: Output) -> SentenceOutput:
    """With what was wished for beside the output."""
    wish, model = job.request.options, job.request.model
    return SentenceOutput(
        output,
        model.links(job.sentence, output.text) if wish.links else None,
        model.attention(job.sentence, output.text) if wish.attention else None,
    )


def _is_memory(error: Exception) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
