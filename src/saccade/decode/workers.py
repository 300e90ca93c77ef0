"""Parallel batches. A step of a search is dozens of small operations, and two threads that share each of them gain
little. Two batches at a time, with one thread each, use two cores almost twice as well."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

import torch

MAX_DECODE_WORKERS = 4  # they share the GIL, so only one of them dispatches an operation at a time

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def parallel_map(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """The results of work(item) in the order in which they finish. The workers share the threads that torch may use; a
    single item gets all of them. Closing the iterator cancels the items that have not started."""
    threads = torch.get_num_threads()
    workers = min(threads, len(items), MAX_DECODE_WORKERS)
    if workers < 2:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, "decode", torch.set_num_threads, (threads // workers,))
    try:
        for done in as_completed([pool.submit(work, item) for item in items]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # a worker's setting is also the default of threads that start later


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Let torch's operations use at most `count` threads inside the block. `set_num_threads` also sets the default of
    threads that start later, so only what was changed is restored: a thread that starts while another one holds a lower
    limit must not make that limit permanent."""
    before = torch.get_num_threads()
    if before <= count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
