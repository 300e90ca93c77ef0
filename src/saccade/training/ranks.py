"""Ranks: processes that share the work of every update. All communication between them goes through `Ranks`."""

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from saccade.devices import CPU, DeviceName, choose_device, device_of_rank
from saccade.errors import RunError, SaccadeError
from saccade.training.heartbeat import Heartbeat
from saccade.training.signals import Interrupted

_T = TypeVar("_T")

JOIN_TIMEOUT = timedelta(minutes=10)  # within which all ranks must start
# Rank 0 may learn a tokenizer or validate for hours while the others wait. The heartbeat detects ranks that hang.
COLLECTIVE_TIMEOUT = timedelta(hours=12)
DEVICE_KEY = "train.device"

# Keeps every process group alive until the process ends. If DDP held the last reference, its destructor would wait for
# gloo's threads while holding the GIL, and such a thread may need the GIL to free a tensor: a deadlock.
_PROCESS_GROUPS: list[Any] = []


class Ranks(Protocol):
    """The collective operations between ranks, which all ranks must call in the same order. Rank 0 (`is_main`) alone
    reads and writes the run folder."""

    rank: int
    count: int
    is_main: bool
    device: torch.device

    def all_reduce_sum(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """The sum over ranks of each value. All ranks must pass the same names."""
        ...

    def all_reduce_max(self, *values: float) -> tuple[float, ...]:
        """The maximum over ranks of each value."""
        ...

    def broadcast(self, value: _T) -> _T:
        """Broadcast a JSON-serializable value from rank 0."""
        ...

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Broadcast the named tensors of rank 0, one after the other."""
        ...

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, which must have the same shape."""
        ...

    def use_all_threads(self) -> AbstractContextManager[None]:
        """Give rank 0 the threads of the other ranks of its machine, for work during which they wait."""
        ...


class SingleProcess:
    """A training in a single process."""

    rank, count, is_main = 0, 1, True

    def __init__(self, device: torch.device = CPU):
        self.device = device

    def all_reduce_sum(self, values: Mapping[str, float]) -> Mapping[str, float]:
        return values

    def all_reduce_max(self, *values: float) -> tuple[float, ...]:
        return values

    def broadcast(self, value: _T) -> _T:
        return value

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        yield from tensors.items()

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        return [tensor]

    def use_all_threads(self) -> AbstractContextManager[None]:
        return nullcontext()


class Distributed:
    """One of several processes."""

    def __init__(self, rank: int, count: int, device: torch.device):
        self.rank, self.count, self.is_main, self.device = rank, count, rank == 0, device

    def all_reduce_sum(self, values: Mapping[str, float]) -> Mapping[str, float]:
        names = sorted(values)
        columns = zip(*self._gather_values([values[name] for name in names]), strict=True)
        # every rank sums in the order of the ranks, so the sums are bit-identical
        return {name: sum(column) for name, column in zip(names, columns, strict=True)}

    def all_reduce_max(self, *values: float) -> tuple[float, ...]:
        return tuple(max(column) for column in zip(*self._gather_values(values), strict=True))

    def broadcast(self, value: _T) -> _T:
        data = json.dumps(value).encode() if self.is_main else b""
        size = torch.tensor([len(data)])
        dist.broadcast(size, 0)
        text = torch.frombuffer(bytearray(data.ljust(int(size))), dtype=torch.uint8)
        dist.broadcast(text, 0)
        return json.loads(text.numpy().tobytes())

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        shapes_and_dtypes = self.broadcast(
            {name: [list(t.shape), str(t.dtype).removeprefix("torch.")] for name, t in tensors.items()}
        )
        for name, (shape, dtype) in shapes_and_dtypes.items():
            tensor = (
                tensors[name].detach().cpu().contiguous()
                if self.is_main
                else torch.empty(shape, dtype=getattr(torch, dtype))
            )
            dist.broadcast(tensor, 0)
            yield name, tensor

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        gathered = [torch.empty_like(tensor) for _ in range(self.count)]
        dist.all_gather(gathered, tensor)
        return gathered

    @contextmanager
    def use_all_threads(self) -> Iterator[None]:
        threads = torch.get_num_threads()
        torch.set_num_threads(threads * int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def _gather_values(self, values: Sequence[float]) -> list[list[float]]:
        return [row.tolist() for row in self.all_gather(torch.tensor(values, dtype=torch.double))]


# ── starting and ending a process group ───────────────────────────────────────────────────────────────────


def is_main_process() -> bool:
    """Whether this process is, or will be, rank 0."""
    return int(os.environ.get("RANK", "0")) == 0 or not is_distributed()


def is_distributed() -> bool:
    """Whether this process is one of several that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def process_group(device_name: DeviceName = "auto") -> Iterator[Ranks]:
    """Join the process group of the ranks that torchrun started; a single process without torchrun. `device_name` is
    `train.device` of the recipe."""
    if not is_distributed():
        yield single_process(device_name)
        return
    store, rank, count = next(iter(rendezvous("env://", timeout=JOIN_TIMEOUT)))
    with _rank_errors(rank):
        device = device_of_rank(device_name, DEVICE_KEY)
        name = _agree_on_name(store, rank, count)
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        prefixed = PrefixStore(name, store)
        dist.init_process_group(backend, store=prefixed, rank=rank, world_size=count, timeout=COLLECTIVE_TIMEOUT)
        _PROCESS_GROUPS.append(dist.group.WORLD)
        with Heartbeat(store, name, rank, count):
            try:
                yield Distributed(rank, count, device)
            except Interrupted:
                dist.barrier()  # torchrun ends all ranks when the first one leaves, so rank 0 must have saved
                raise
            dist.barrier()
    dist.destroy_process_group()


def single_process(device_name: DeviceName) -> SingleProcess:
    """A single process that trains on this device."""
    return SingleProcess(choose_device(device_name, DEVICE_KEY))


@contextmanager
def _rank_errors(rank: int) -> Iterator[None]:
    """Add the rank to error messages, and report a lost connection in one line."""
    try:
        yield
    except SaccadeError as error:
        raise (error if rank == 0 else type(error)(f"rank {rank}: {error}")) from None
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise RunError(
                f"rank {rank}: another rank ended, so this one ends too; run the same command again to resume from the "
                "last checkpoint"
            ) from None
        raise


def _agree_on_name(store: Store, rank: int, count: int) -> str:
    """A new name for the process group of this start, agreed on by all ranks. After a restart, torchrun's store may
    still contain keys of the previous start, such as addresses of ended ranks; under a new name they are not read.

    Each rank writes an id of its own under `hello/<rank>`; rank 0 answers with the name under `welcome/<id>`; the rank
    confirms under `here/<name>/<rank>`."""
    own = uuid.uuid4().hex
    if rank == 0:
        _announce_name(store, own, set(range(1, count)))
        return own
    store.set(f"saccade/hello/{rank}", own)
    name = store.get(f"saccade/welcome/{own}").decode()  # waits for rank 0
    store.set(f"saccade/here/{name}/{rank}", "")
    return name


def _announce_name(store: Store, name: str, missing: set[int]) -> None:
    """Answer the `hello` of every rank with the name until all ranks have confirmed it. The `hello` of a rank may be
    left over from an earlier start, so a rank counts as present only when it has confirmed the name."""
    deadline = time.monotonic() + JOIN_TIMEOUT.total_seconds()
    while missing:
        for rank in [rank for rank in missing if store.check([f"saccade/hello/{rank}"])]:
            store.set(f"saccade/welcome/{store.get(f'saccade/hello/{rank}').decode()}", name)
        missing = {rank for rank in missing if not store.check([f"saccade/here/{name}/{rank}"])}
        if time.monotonic() > deadline:
            absent, minutes = ", ".join(map(str, sorted(missing))), JOIN_TIMEOUT.total_seconds() / 60
            raise RunError(f"rank {absent} did not start within {minutes:.0f} minutes; start all ranks")
        time.sleep(0.02)


def rank_seed(seed: int, rank: int) -> int:
    """The random seed of a rank. Rank 0 has the seed that a single process would have."""
    return seed if rank == 0 else int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])
