"""Several threads in one process: each takes a share of every batch and works on it with a core of its own.

Threads that share every operation wait for each other at its end, and a small model is thousands of small operations.
Threads that share the rows wait once an update; and a share's numbers stay nearer to its core.
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
from saccade.parts.dropout import Dropout
from saccade.runs.weights import named_tensors
from saccade.tasks.losses import Loss
from saccade.tasks.task import Task

MIN_SHARD_TOKENS = 256  # places of a share on its longer side: fewer are not worth a thread
MAX_LAYER_ACTIVATIONS = (
    3 * 2**15
)  # numbers of a layer: places × width; more are little faster, and what a pass remembers takes memory
MAX_SEPARATE_GRADIENTS = 2**23  # weights of a model whose gradients every thread may have for itself

NumberedShards = Sequence[tuple[int, Batch]]  # the shares that a thread is given, with their numbers
_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


def can_thread(model: Model) -> bool:
    """Whether shares can be learned from at the same time: not where one pass leaves something for the next, such as
    the baseline of hard attention."""
    return all(isinstance(tensor, nn.Parameter) for tensor in named_tensors(model)[0].values())


class ThreadedReplicas:
    """A model and its doubles, a thread each. They have the same weights; only what is said and drawn is apart.

    The gradients are summed in a fixed order, and what the doubles draw follows from the state of torch's generator:
    the same number of threads gives the same bits.
    """

    def __init__(self, model: Model, task: Task, threads: int, dim: int):
        self.model, self.task, self._places = model, task, max(MIN_SHARD_TOKENS, MAX_LAYER_ACTIVATIONS // dim)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._replicas = [model, *(_replica(model) for _ in range(threads - 1))]
        self._pool = ThreadPoolExecutor(threads, "learn", torch.set_num_threads, (1,))
        self._separate = sum(p.numel() for p in self._parameters) <= MAX_SEPARATE_GRADIENTS

    def backward(self, batch: Batch, last: bool) -> Loss:
        threads = max(1, min(len(self._replicas), batch.longer_places // MIN_SHARD_TOKENS))
        shares = batch.split(threads * math.ceil(batch.longer_places / (threads * self._places)))
        for double in self._replicas[1:threads]:
            _reseed(double, self.model.training)
        hands = [[*enumerate(shares)][i::threads] for i in range(threads)]
        return _sum(
            self._sum_separate(hands) if self._separate or len(shares) <= threads else self._accumulate_in_order(hands)
        )

    def _sum_separate(self, hands: Sequence[NumberedShards]) -> list[Loss]:
        """Every thread keeps its gradients until all are there: so none waits for another."""
        found = self._all(self._separate_gradients, hands)
        for gradients, _ in found:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = _added(parameter.grad, gradient)
        return [loss for _, losses in found for loss in losses]

    def _separate_gradients(self, model: Model, hand: NumberedShards) -> tuple[Sequence[Tensor | None], list[Loss]]:
        sums: Sequence[Tensor | None] = [None] * len(self._parameters)
        losses = []
        for _, share in hand:
            loss = self.task.loss(model, share)
            gradients = torch.autograd.grad(loss.total, self._parameters, allow_unused=True)
            sums = [_added(known, new) for known, new in zip(sums, gradients, strict=True)]
            losses.append(Loss(loss.total.detach(), loss.count, loss.shown))
        return sums, losses

    def _accumulate_in_order(self, hands: Sequence[NumberedShards]) -> list[Loss]:
        """A wide model: gradients are large, and each is added as soon as it is there."""
        self._accumulation.begin()
        return [loss for losses in self._all(self._backward_in_order, hands) for loss in losses]

    def _backward_in_order(self, model: Model, hand: NumberedShards) -> list[Loss]:
        losses = []
        for number, share in hand:
            with self._accumulation.of(number):
                loss = self.task.loss(model, share)
                loss.total.backward()
            losses.append(Loss(loss.total.detach(), loss.count, loss.shown))
        return losses

    def _all(self, work: Callable[[Model, _Work], _Result], given: Sequence[_Work]) -> list[_Result]:
        """What every double makes of what it is given. If one fails, the others come to their end first."""
        doubles = self._replicas[: len(given)]
        futures = [self._pool.submit(work, *each) for each in zip(doubles, given, strict=True)]
        wait(futures)
        return [future.result() for future in futures]

    @cached_property
    def _accumulation(self) -> "_OrderedAccumulation":
        return _OrderedAccumulation(self._parameters)

    def collect_weights(self) -> None: ...
    def broadcast_weights(self) -> None: ...


class _OrderedAccumulation:
    """Every share adds its gradients to those of the parameters as soon as it has them, so that hardly any are kept
    twice; but to each parameter in the order of the shares, since the order of a sum is in its last bits."""

    def __init__(self, parameters: Sequence[nn.Parameter]):
        self._done = [0] * len(parameters)  # shares that have added theirs
        self._change = threading.Condition()
        self._here = threading.local()
        self._failed = False
        for index, parameter in enumerate(parameters):
            parameter.register_hook(partial(self._wait, index))
            parameter.register_post_accumulate_grad_hook(partial(self._pass_on, index))

    def begin(self) -> None:
        self._done[:], self._failed = [0] * len(self._done), False

    @contextmanager
    def of(self, share: int) -> Iterator[None]:
        """What is added by this thread for as long as the block runs is this share's."""
        self._here.share = share
        try:
            yield
            for index in range(len(self._done)):
                if self._done[index] <= share:  # it took no part
                    self._wait(index)
                    self._pass_on(index)
        except BaseException:
            with self._change:
                self._failed = True
                self._change.notify_all()
            raise
        finally:
            self._here.share = None

    def _wait(self, index: int, gradient: Tensor | None = None) -> None:
        share = getattr(self._here, "share", None)
        if share is not None and self._done[index] != share:
            with self._change:
                self._change.wait_for(lambda: self._failed or self._done[index] == share)

    def _pass_on(self, index: int, parameter: nn.Parameter | None = None) -> None:
        if getattr(self._here, "share", None) is not None:
            with self._change:
                self._done[index] += 1
                self._change.notify_all()


def _replica(model: Model) -> Model:
    """Other modules, the same weights."""
    double = copy.deepcopy(model, {id(p): p for p in model.parameters()})
    generator = torch.Generator()
    for part in double.modules():
        if isinstance(part, Dropout):
            part.generator = generator
    return double


def _reseed(double: Model, training: bool) -> None:
    """Ready for an update, and for other draws than before."""
    if double.training != training:
        double.train(training)
    seed = int(torch.randint(2**63 - 1, ()))
    for part in double.modules():
        if isinstance(part, Dropout) and part.generator is not None:
            part.generator.manual_seed(seed)
            return  # they share it


def _added(known: Tensor | None, new: Tensor | None) -> Tensor | None:
    return new if known is None else known if new is None else known.add_(new)


def _sum(losses: Sequence[Loss]) -> Loss:
    shown: Counter[str] = Counter()
    for loss in losses:
        shown.update(loss.shown)
    total = torch.stack([loss.total for loss in losses]).sum()
    return Loss(total, sum(loss.count for loss in losses), dict(shown))
