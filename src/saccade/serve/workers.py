"""The worker threads that call the models. An exception in a call ends neither the thread nor other requests."""

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

MAX_SERVICE_WORKERS = 4  # all workers share the interpreter lock, so more of them do not help


def worker_count() -> int:
    """One worker per torch thread: two small batches in parallel are faster than one batch on two threads."""
    return min(torch.get_num_threads(), MAX_SERVICE_WORKERS)


class Worker:
    """A thread that translates batches until the queue is closed."""

    def __init__(
        self, queue: Queue, throughput: Throughput, metrics: Metrics, loop: asyncio.AbstractEventLoop, threads: int
    ):
        """`threads`: how many threads torch uses for one operation."""
        self._queue, self._throughput, self._metrics = queue, throughput, metrics
        self._loop, self._threads = loop, threads
        self._last_progress: float | None = None  # when a decoder step last began; None while idle
        threading.Thread(target=self._work, name="translate", daemon=True).start()

    def has_stalled(self, seconds: float) -> bool:
        """Whether the current decoder step has taken longer than this."""
        last_progress = self._last_progress
        return last_progress is not None and time.monotonic() - last_progress > seconds

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while jobs := self._queue.take():
            self._last_progress = time.monotonic()
            self._translate(jobs)
            self._last_progress = None
            self._queue.finish(jobs, self._deliver)

    def _translate(self, jobs: Sequence[SentenceJob]) -> None:
        """Translate a batch. If it fails, translate each sentence alone, so that only the faulty one fails."""
        try:
            self._translate_batch(jobs)
        except Cancelled:
            pass
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._translate([job])
            else:
                self._fail(jobs[0].request, error)

    def _translate_batch(self, jobs: Sequence[SentenceJob]) -> None:
        start = time.monotonic()
        model, options = jobs[0].request.model, jobs[0].request.options
        sentences = [job.sentence for job in jobs]
        results = model.generate(sentences, options.alternatives, self._progress_callback(jobs))
        self._throughput.record(model.name, len(jobs), sum(job.size for job in jobs), time.monotonic() - start)
        self._metrics.batch_size.observe(len(jobs))
        for job, outputs in zip(jobs, results, strict=True):
            self._metrics.tokens.labels("output").inc(len(outputs[0].ids))
            if job.request.open:
                self._last_progress = time.monotonic()
                job.request.outputs[job.index] = [_with_options(job, output) for output in outputs]

    def _progress_callback(self, jobs: Sequence[SentenceJob]) -> Callable[[], bool]:
        """The `should_continue` of a search: it records the time, and stops a search for which no client waits."""

        def should_continue() -> bool:
            self._last_progress = time.monotonic()
            return any(job.request.open for job in jobs)

        return should_continue

    def _fail(self, request: QueuedRequest, error: Exception) -> None:
        log_failure(request.request_id, error)
        response = internal_error(request.request_id)
        if _is_out_of_memory(error):
            response = ApiError(503, "not enough memory for this request; send less text", 1, "memory")
        self._queue.cancel(request)
        self._call_in_loop(lambda: request.result.done() or request.result.set_exception(response))

    def _deliver(self, request: QueuedRequest) -> None:
        outputs = [request.outputs[index] for index in range(len(request.sentences))]
        self._call_in_loop(lambda: request.result.done() or request.result.set_result(outputs))

    def _call_in_loop(self, callback: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


def _with_options(job: SentenceJob, output: Output) -> SentenceOutput:
    """The output with the word alignment and the attention that the request asked for."""
    options, model = job.request.options, job.request.model
    return SentenceOutput(
        output,
        model.alignment(job.sentence, output.text) if options.alignments else None,
        model.attention(job.sentence, output.text) if options.attention else None,
    )


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
