"""Data parallelism over threads: each thread computes loss and gradients of a shard of every batch on its own core.

If threads share every operation instead, they wait for each other after each one, and a small model is thousands of
small operations. Threads that share the rows of a batch wait once per update, and a shard's activations stay in the
cache of its core.
"""

import copy
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from saccade.data.batches import Batch
from saccade.models.assemble import Model
from saccade.parts.randomness import set_generator
from saccade.runs.weights import named_tensors
from saccade.tasks.losses import Loss
from saccade.training.device_loss import LossFunction

MIN_SHARD_TOKENS = 256  # padded tokens of a shard on its longer side; smaller shards are not worth a thread
# Padded tokens × model width of a shard: larger shards are hardly faster, and their activations need memory.
MAX_LAYER_ACTIVATIONS = 3 * 2**15
MAX_SEPARATE_GRADIENTS = 2**23  # parameters; larger models do not keep gradients per thread

NumberedShards = Sequence[tuple[int, Batch]]  # the shards of one thread, with their numbers in the batch
_Input = TypeVar("_Input")
_Result = TypeVar("_Result")


def can_thread(model: Model) -> bool:
    """Whether shards can be computed in parallel. They cannot if a forward pass updates a buffer for the next one, such
    as the baseline of hard attention."""
    return all(isinstance(tensor, nn.Parameter) for tensor in named_tensors(model)[0].values())


class ThreadedReplicas:
    """A model and its replicas, one per thread. They share their weights; each has its own notes and its own random
    generator.

    Gradients are summed in a fixed order, and the replicas' generators are seeded from torch's global one, so the same
    number of threads gives bit-identical gradients.
    """

    def __init__(self, model: Model, task: LossFunction, threads: int, dim: int):
        self.model, self.task = model, task
        self._shard_tokens = max(MIN_SHARD_TOKENS, MAX_LAYER_ACTIVATIONS // dim)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._replicas = [model, *(_replica(model) for _ in range(threads - 1))]
        self._generators = [torch.Generator() for _ in self._replicas[1:]]  # the model itself draws from torch's
        for replica, generator in zip(self._replicas[1:], self._generators, strict=True):
            set_generator(replica, generator)
        self._pool = ThreadPoolExecutor(threads, "replica", torch.set_num_threads, (1,))
        self._keeps_separate = sum(p.numel() for p in self._parameters) <= MAX_SEPARATE_GRADIENTS

    def backward(self, batch: Batch, last: bool) -> Loss:
        threads = max(1, min(len(self._replicas), batch.longer_side_tokens // MIN_SHARD_TOKENS))
        shards = batch.split(threads * math.ceil(batch.longer_side_tokens / (threads * self._shard_tokens)))
        for replica, generator in zip(self._replicas[1:threads], self._generators, strict=False):
            if replica.training != self.model.training:
                replica.train(self.model.training)
            generator.manual_seed(int(torch.randint(2**63 - 1, ())))
        by_thread = [[*enumerate(shards)][i::threads] for i in range(threads)]
        if self._keeps_separate or len(shards) <= threads:
            return _sum(self._sum_separate(by_thread))
        return _sum(self._accumulate_in_order(by_thread))

    def _sum_separate(self, by_thread: Sequence[NumberedShards]) -> list[Loss]:
        """Every thread keeps its own gradients, which are summed at the end. No thread waits for another."""
        results = self._run(self._separate_gradients, by_thread)
        for gradients, _ in results:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = _added(parameter.grad, gradient)
        return [loss for _, losses in results for loss in losses]

    def _separate_gradients(self, model: Model, shards: NumberedShards) -> tuple[Sequence[Tensor | None], list[Loss]]:
        sums: Sequence[Tensor | None] = [None] * len(self._parameters)
        losses = []
        for _, shard in shards:
            loss = self.task.loss(model, shard)
            gradients = torch.autograd.grad(loss.total, self._parameters, allow_unused=True)
            sums = [_added(total, gradient) for total, gradient in zip(sums, gradients, strict=True)]
            losses.append(Loss(loss.total.detach(), loss.count, loss.logged))
        return sums, losses

    def _accumulate_in_order(self, by_thread: Sequence[NumberedShards]) -> list[Loss]:
        """For wide models, whose gradients are large: each gradient is added to `.grad` as soon as it is computed."""
        self._accumulation.begin()
        return [loss for losses in self._run(self._backward_in_order, by_thread) for loss in losses]

    def _backward_in_order(self, model: Model, shards: NumberedShards) -> list[Loss]:
        losses = []
        for number, shard in shards:
            with self._accumulation.of(number):
                loss = self.task.loss(model, shard)
                loss.total.backward()
            losses.append(Loss(loss.total.detach(), loss.count, loss.logged))
        return losses

    def _run(self, function: Callable[[Model, _Input], _Result], inputs: Sequence[_Input]) -> list[_Result]:
        """Call function(replica, input) in one thread per input. If one fails, the error is raised after all have
        ended."""
        replicas = self._replicas[: len(inputs)]
        futures = [self._pool.submit(function, *pair) for pair in zip(replicas, inputs, strict=True)]
        wait(futures)
        return [future.result() for future in futures]

    @cached_property
    def _accumulation(self) -> "_OrderedAccumulation":
        return _OrderedAccumulation(self._parameters)

    def collect_weights(self) -> None: ...
    def broadcast_weights(self) -> None: ...


class _OrderedAccumulation:
    """Adds each gradient of a shard to `.grad` as soon as it is computed, so that few gradients are in memory besides
    `.grad`. For each parameter the shards add in a fixed order, because the last bits of a sum depend on its order."""

    def __init__(self, parameters: Sequence[nn.Parameter]):
        self._done = [0] * len(parameters)  # for each parameter, the number of shards that have added their gradient
        self._change = threading.Condition()
        self._thread = threading.local()
        self._failed = False
        for index, parameter in enumerate(parameters):
            parameter.register_hook(partial(self._wait, index))
            parameter.register_post_accumulate_grad_hook(partial(self._finish, index))

    def begin(self) -> None:
        self._done[:], self._failed = [0] * len(self._done), False

    @contextmanager
    def of(self, shard: int) -> Iterator[None]:
        """Gradients that this thread computes inside the `with` block belong to this shard."""
        self._thread.shard = shard
        try:
            yield
            for index in range(len(self._done)):
                if self._done[index] <= shard:  # the parameter got no gradient
                    self._wait(index)
                    self._finish(index)
        except BaseException:
            with self._change:
                self._failed = True
                self._change.notify_all()
            raise
        finally:
            self._thread.shard = None

    def _wait(self, index: int, gradient: Tensor | None = None) -> None:
        shard = getattr(self._thread, "shard", None)
        if shard is not None and self._done[index] != shard:
            with self._change:
                self._change.wait_for(lambda: self._failed or self._done[index] == shard)

    def _finish(self, index: int, parameter: nn.Parameter | None = None) -> None:
        if getattr(self._thread, "shard", None) is not None:
            with self._change:
                self._done[index] += 1
                self._change.notify_all()


def _replica(model: Model) -> Model:
    """Another module tree that shares the weights."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters()})


def _added(total: Tensor | None, gradient: Tensor | None) -> Tensor | None:
    return gradient if total is None else total if gradient is None else total.add_(gradient)


def _sum(losses: Sequence[Loss]) -> Loss:
    logged: Counter[str] = Counter()
    for loss in losses:
        logged.update(loss.logged)
    total = torch.stack([loss.total for loss in losses]).sum()
    return Loss(total, sum(loss.count for loss in losses), dict(logged))
