"""A pulse: how ranks notice that one of them stands still, however long the others may have to wait for it."""

import os
import sys
import threading
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[reportPrivateImportUsage]
from torch.distributed.distributed_c10d import PrefixStore

HEARTBEAT_TIMEOUT = 15.0  # seconds; torchrun takes up to 30 more to end a process that stands still


class Heartbeat:
    """`with Pulse(…):` a thread tells the store again and again that this rank lives. The lead listens to all, the
    others to the lead; who is silent for too long ends the process that noticed it, and torchrun then all others.

    A process that is stopped stops its thread too. Silence is counted in beats of one's own, not by the clock: who was
    asleep for an hour has missed nothing.
    """

    def __init__(self, store: Any, prefix: str, rank: int, count: int):
        self.limit = float(os.environ.get("SACCADE_HEARTBEAT_TIMEOUT", HEARTBEAT_TIMEOUT))
        self.every = min(1.0, self.limit / 5)
        own = TCPStore(store.host, store.port, timeout=timedelta(seconds=self.limit))  # one that waits for nobody
        self.store = PrefixStore(f"{prefix}/pulse", own)
        self.rank = rank
        self.others = {str(other): b"" for other in (range(1, count) if rank == 0 else [0])}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self.store.set(str(self.rank), "0")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(self.limit)  # a thread inside the store when Python ends would abort the process

    def _beat(self) -> None:
        beats, missed = 0, dict.fromkeys(self.others, 0)
        while not self._done.wait(self.every):
            beats += 1
            try:
                self.store.set(str(self.rank), str(beats))
                heard = dict(zip(self.others, self.store.multi_get(list(self.others)), strict=True))
            except RuntimeError:
                self._end("the store that torchrun keeps does not answer")
                return
            missed = {other: 0 if heard[other] != self.others[other] else missed[other] + 1 for other in self.others}
            self.others = heard
            if silent := [other for other in missed if missed[other] * self.every >= self.limit]:
                self._end(f"rank {', '.join(silent)} has been silent for {self.limit:g} seconds")

    def _end(self, reason: str) -> None:
        """At once: the main thread may be waiting for the one that is silent."""
        if self._done.is_set():
            return
        hint = "the same command goes on from the last checkpoint"
        print(f"saccade: rank {self.rank}: {reason}; {hint}", file=sys.stderr, flush=True)
        os._exit(1)
