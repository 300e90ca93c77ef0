"""Batches side by side: a step of a search is dozens of small operations, from which two threads that share each of
them gain little. Two batches at a time, with a thread each, use two cores almost twice as well."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

import torch

MOST = 4  # workers; they share one interpreter, which hands out the operations one at a time

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """work(item) of every item, in the order in which they are done, on the threads that torch may use here. A lone
    item has all of them. Closing the iterator drops what has not begun."""
    threads = torch.get_num_threads()
    workers = min(threads, len(items), MOST)
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
def at_most_threads(count: int) -> Iterator[None]:
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
