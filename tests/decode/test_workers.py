"""Batches side by side: the same results as one after another, and nothing left behind."""

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


def test_every_item_once_by_as_many_workers_as_torch_has_threads(threads: int):
    together = threading.Barrier(threads, timeout=10)  # passed only if so many work at the same time
    found = parallel_map(lambda item: (together.wait(), item * item)[1], range(2 * threads * 3))
    assert sorted(found) == [item * item for item in range(2 * threads * 3)]


def test_workers_share_the_threads_and_give_them_back(threads: int):
    found = list(parallel_map(lambda _: torch.get_num_threads(), range(6)))
    assert set(found) == {1}
    assert torch.get_num_threads() == threads
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [threads], "threads that begin later have as many, too"


def test_a_lone_item_has_all_threads(threads: int):
    assert list(parallel_map(lambda _: torch.get_num_threads(), [0])) == [threads]


def test_an_error_comes_through_and_stops_the_rest(threads: int):
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 0:
            raise RunError("of no use")
        time.sleep(0.01)
        return item

    with pytest.raises(RunError, match="of no use"):
        list(parallel_map(work, range(1000)))
    assert len(begun) < 1000
    assert torch.get_num_threads() == threads


def test_closing_drops_what_has_not_begun(threads: int):
    begun: list[int] = []
    found = parallel_map(lambda item: (begun.append(item), time.sleep(0.01)), range(1000))
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert len(begun) < 1000
    assert torch.get_num_threads() == threads
