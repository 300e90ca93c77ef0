"""Several ranks: processes that share the work of every update. What they say to each other, they say here."""

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from saccade.errors import RunError, SaccadeError
from saccade.training.heartbeat import Heartbeat
from saccade.training.signals import Interrupted

JOIN_TIMEOUT = timedelta(minutes=10)  # in which all ranks must come
COLLECTIVE_TIMEOUT = timedelta(
    hours=12
)  # for a rank that lives: one may learn a tokenizer or validate while the others wait

# Groups are never let go. If the model's wrapper were the last to hold one, it would wait for gloo's threads while it
# keeps Python's lock, and such a thread may need that lock to let go of a tensor: both would wait for ever.
_WORLDS: list[Any] = []


class Ranks(Protocol):
    """The contract. `lead` is true of one rank: it alone reads and writes the run's folder, and decides."""

    rank: int
    count: int
    is_main: bool
    device: torch.device

    def all_reduce_sum(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Of all ranks, by name. All must know the same names."""
        ...

    def all_reduce_max(self, *values: float) -> tuple[float, ...]:
        """The largest of all ranks, one by one."""
        ...

    def broadcast(self, value: Any) -> Any:
        """What the lead says, on every rank. It goes as JSON."""
        ...

    def broadcast_tensors(self, mine: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The lead's, one after the other, on every rank."""
        ...

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """One of each rank, all of the same shape."""
        ...

    def use_all_threads(self) -> AbstractContextManager[None]:
        """While they wait for the lead, it has their threads too."""
        ...


class SingleProcess:
    """The one process of a training that is not shared."""

    rank, count, is_main, device = 0, 1, True, torch.device("cpu")

    def all_reduce_sum(self, values: Mapping[str, float]) -> Mapping[str, float]:
        return values

    def all_reduce_max(self, *values: float) -> tuple[float, ...]:
        return values

    def broadcast(self, value: Any) -> Any:
        return value

    def broadcast_tensors(self, mine: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        yield from mine.items()

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        return [tensor]

    def use_all_threads(self) -> AbstractContextManager[None]:
        return nullcontext()


class Distributed:
    """One of several processes, of which all call the same methods in the same order."""

    def __init__(self, rank: int, count: int, device: torch.device):
        self.rank, self.count, self.is_main, self.device = rank, count, rank == 0, device

    def all_reduce_sum(self, values: Mapping[str, float]) -> Mapping[str, float]:
        names = sorted(values)
        columns = zip(*self._listed([values[name] for name in names]), strict=True)
        return {name: sum(column) for name, column in zip(names, columns, strict=True)}  # in the same order everywhere

    def all_reduce_max(self, *values: float) -> tuple[float, ...]:
        return tuple(max(column) for column in zip(*self._listed(values), strict=True))

    def broadcast(self, value: Any) -> Any:
        data = json.dumps(value).encode() if self.is_main else b""
        size = torch.tensor([len(data)])
        dist.broadcast(size, 0)
        text = torch.frombuffer(bytearray(data.ljust(int(size))), dtype=torch.uint8)
        dist.broadcast(text, 0)
        return json.loads(text.numpy().tobytes())

    def broadcast_tensors(self, mine: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        kinds = self.broadcast({name: [list(t.shape), str(t.dtype).removeprefix("torch.")] for name, t in mine.items()})
        for name, (shape, kind) in kinds.items():
            tensor = mine[name].contiguous() if self.is_main else torch.empty(shape, dtype=getattr(torch, kind))
            dist.broadcast(tensor, 0)
            yield name, tensor

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        found = [torch.empty_like(tensor) for _ in range(self.count)]
        dist.all_gather(found, tensor)
        return found

    @contextmanager
    def use_all_threads(self) -> Iterator[None]:
        threads = torch.get_num_threads()
        torch.set_num_threads(threads * int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def _listed(self, values: Sequence[float]) -> list[list[float]]:
        return [row.tolist() for row in self.all_gather(torch.tensor(values, dtype=torch.double))]


# ── coming together and parting ───────────────────────────────────────────────────────────────────


def is_main_process() -> bool:
    """Whether this process is, or will be, the lead."""
    return int(os.environ.get("RANK", "0")) == 0 or not is_distributed()


def is_distributed() -> bool:
    """Whether this process is one of several that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def process_group() -> Iterator[Ranks]:
    """The ranks that torchrun started, or the one process that there is."""
    if not is_distributed():
        yield SingleProcess()
        return
    store, rank, count = next(iter(rendezvous("env://", timeout=JOIN_TIMEOUT)))
    device = _device()
    with _errors_of(rank):
        name = _round(store, rank, count)
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        ours = PrefixStore(name, store)
        dist.init_process_group(backend, store=ours, rank=rank, world_size=count, timeout=COLLECTIVE_TIMEOUT)
        _WORLDS.append(dist.group.WORLD)
        with Heartbeat(store, name, rank, count):
            try:
                yield Distributed(rank, count, device)
            except Interrupted:
                dist.barrier()  # the first to leave makes torchrun end the others: the lead must have saved
                raise
            dist.barrier()
    dist.destroy_process_group()


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


@contextmanager
def _errors_of(rank: int) -> Iterator[None]:
    """Errors name the rank; one that is gone is no reason for a traceback."""
    try:
        yield
    except SaccadeError as error:
        raise (error if rank == 0 else type(error)(f"rank {rank}: {error}")) from None
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise RunError(
                f"rank {rank}: another rank is gone, so this one ends too; the same command goes on from the last "
                "checkpoint"
            ) from None
        raise


def _round(store: Store, rank: int, count: int) -> str:
    """A name that only the ranks of this start know. After a restart torchrun's store may still hold what was written
    before it, such as addresses of ranks that have ended; under a new name they are not found."""
    mine = uuid.uuid4().hex
    if rank == 0:
        _welcome(store, mine, set(range(1, count)))
        return mine
    store.set(f"saccade/hello/{rank}", mine)
    name = store.get(f"saccade/welcome/{mine}").decode()  # waits for the lead
    store.set(f"saccade/here/{name}/{rank}", "")
    return name


def _welcome(store: Store, name: str, missing: set[int]) -> None:
    """Tell the name to every rank that says hello, until all have heard it. A hello may be an old one."""
    end = time.monotonic() + JOIN_TIMEOUT.total_seconds()
    while missing:
        for rank in [rank for rank in missing if store.check([f"saccade/hello/{rank}"])]:
            store.set(f"saccade/welcome/{store.get(f'saccade/hello/{rank}').decode()}", name)
        missing = {rank for rank in missing if not store.check([f"saccade/here/{name}/{rank}"])}
        if time.monotonic() > end:
            raise RunError(
                f"rank {', '.join(map(str, sorted(missing)))} did not come within {JOIN_TIMEOUT}; start all ranks"
            )
        time.sleep(0.02)


def rank_seed(seed: int, rank: int) -> int:
    """Ranks draw apart from each other, the first as one process would."""
    return seed if rank == 0 else int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])
