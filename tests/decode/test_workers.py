"""Parallel batches: all results, errors and thread settings."""

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from saccade.decode.workers import parallel_map
from saccade.errors import RunError


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_as_many_workers_as_threads_process_each_item_once(threads: int):
    barrier = threading.Barrier(threads, timeout=10)  # passed only if so many workers run at the same time
    results = parallel_map(lambda item: (barrier.wait(), item * item)[1], range(2 * threads * 3))
    assert sorted(results) == [item * item for item in range(2 * threads * 3)]


def test_workers_share_the_threads_and_the_setting_is_restored(threads: int):
    counts = list(parallel_map(lambda _: torch.get_num_threads(), range(6)))
    assert set(counts) == {1}
    assert torch.get_num_threads() == threads
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [threads], "threads that start later do not have the restored setting"


def test_single_item_gets_all_threads(threads: int):
    assert list(parallel_map(lambda _: torch.get_num_threads(), [0])) == [threads]


def test_error_is_raised_and_cancels_the_other_items(threads: int):
    started: list[int] = []

    def work(item: int) -> int:
        started.append(item)
        if item == 0:
            raise RunError("failed")
        time.sleep(0.01)
        return item

    with pytest.raises(RunError, match="failed"):
        list(parallel_map(work, range(1000)))
    assert len(started) < 1000
    assert torch.get_num_threads() == threads


def test_closing_cancels_the_items_that_have_not_started(threads: int):
    started: list[int] = []
    results = parallel_map(lambda item: (started.append(item), time.sleep(0.01)), range(1000))
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(started) < 1000
    assert torch.get_num_threads() == threads
