"""Batches side by side: a step of a search is dozens of small operations, from which two threads that share each of
them gain little. Two batches at a time, with a thread each, use two cores almost twice as well."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

import torch

MAX_DECODE_WORKERS = 4  # workers; they share one interpreter, which hands out the operations one at a time

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def parallel_map(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """work(item) of every item, in the order in which they are done, on the threads that torch may use here. A single
    item has all of them. Closing the iterator drops what has not begun."""
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
        torch.set_num_threads(threads)  # what a worker sets is also the default of threads yet to come


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Torch's operations use no more threads for as long as the block runs. What is set is also the default of threads
    yet to come; one that finds few enough must not write them back for good."""
    before = torch.get_num_threads()
    if before <= count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
