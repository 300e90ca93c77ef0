"""The heartbeat: how ranks notice that one of them hangs, although a healthy rank may keep the others waiting for
hours."""

import os
import sys
import threading
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[reportPrivateImportUsage]
from torch.distributed.distributed_c10d import PrefixStore

HEARTBEAT_TIMEOUT = 15.0  # seconds; torchrun may need 30 more to end a process that hangs


class Heartbeat:
    """`with Heartbeat(…):` a thread regularly increments this rank's counter in the store. Rank 0 watches the counters
    of all ranks, the others that of rank 0. If a counter stands still for too long, the process that notices it exits,
    and torchrun ends all others.

    Suspending a process suspends its heartbeat too. Missed heartbeats count our own ticks, so a suspended process does
    not time out its peers when it wakes up.
    """

    def __init__(self, store: Any, prefix: str, rank: int, count: int):
        self.limit = float(os.environ.get("SACCADE_HEARTBEAT_TIMEOUT", HEARTBEAT_TIMEOUT))
        self.every = min(1.0, self.limit / 5)
        # a connection of its own, because torch's may be blocked in a wait
        connection = TCPStore(store.host, store.port, timeout=timedelta(seconds=self.limit))
        self.store = PrefixStore(f"{prefix}/heartbeat", connection)
        self.rank = rank
        self.others = {str(other): b"" for other in (range(1, count) if rank == 0 else [0])}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self.store.set(str(self.rank), "0")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(self.limit)  # a thread in the store at interpreter exit would abort the process

    def _beat(self) -> None:
        beats, missed = 0, dict.fromkeys(self.others, 0)
        while not self._done.wait(self.every):
            beats += 1
            try:
                self.store.set(str(self.rank), str(beats))
                counters = dict(zip(self.others, self.store.multi_get(list(self.others)), strict=True))
            except RuntimeError:
                self._exit("torchrun's store does not answer")
                return
            missed = {other: 0 if counters[other] != self.others[other] else missed[other] + 1 for other in self.others}
            self.others = counters
            if timed_out := [other for other in missed if missed[other] * self.every >= self.limit]:
                self._exit(f"rank {', '.join(timed_out)} sent no heartbeat for {self.limit:g} seconds")

    def _exit(self, reason: str) -> None:
        """Exit at once: the main thread may be blocked in a collective operation with the rank that hangs."""
        if self._done.is_set():
            return
        hint = "run the same command again to resume from the last checkpoint"
        print(f"saccade: rank {self.rank}: {reason}; {hint}", file=sys.stderr, flush=True)
        os._exit(1)
