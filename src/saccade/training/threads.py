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
from saccade.runs.checkpoints import named_tensors
from saccade.tasks.losses import Loss
from saccade.tasks.task import Task

LEAST = 256  # places of a share on its longer side: fewer are not worth a thread
MOST = 2**18  # numbers of a layer: places × width; more are no faster, and all that a pass remembers takes memory

Work = TypeVar("Work")
Result = TypeVar("Result")


def can_share(model: Model) -> bool:
    """Whether shares can be learned from at the same time: not where one pass leaves something for the next, such as
    the baseline of hard attention."""
    return all(isinstance(tensor, nn.Parameter) for tensor in named_tensors(model)[0].values())


class SideBySide:
    """A model and its doubles, a thread each. They have the same weights; only what is said and drawn is apart.

    The gradients are summed in a fixed order, and what the doubles draw follows from the state of torch's generator:
    the same number of threads gives the same bits.
    """

    def __init__(self, model: Model, task: Task, threads: int, dim: int):
        self.model, self.task, self._places = model, task, max(LEAST, MOST // dim)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._doubles = [model, *(_double(model) for _ in range(threads - 1))]
        self._pool = ThreadPoolExecutor(threads, "learn", torch.set_num_threads, (1,))

    def learn(self, batch: Batch, last: bool) -> Loss:
        threads = max(1, min(len(self._doubles), batch.longer_places // LEAST))
        shares = batch.cut(threads * math.ceil(batch.longer_places / (threads * self._places)))
        for double in self._doubles[1:threads]:
            _wake(double, self.model.training)
        return _sum(self._each_once(shares) if len(shares) <= threads else self._in_turn(shares, threads))

    def _each_once(self, shares: Sequence[Batch]) -> list[Loss]:
        """Every thread has one share, and keeps its gradients until all are there: so none waits for another."""
        found = self._all(self._learn, shares)
        for gradients, _ in found:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        return [loss for _, loss in found]

    def _learn(self, model: Model, share: Batch) -> tuple[Sequence[Tensor | None], Loss]:
        loss = self.task.loss(model, share)
        gradients = torch.autograd.grad(loss.total, self._parameters, allow_unused=True)
        return gradients, Loss(loss.total.detach(), loss.count, loss.shown)

    def _in_turn(self, shares: Sequence[Batch], threads: int) -> list[Loss]:
        """A wide model, or a large batch: gradients are large or many, and each is added as soon as it is there."""
        hands = [[*enumerate(shares)][i::threads] for i in range(threads)]
        self._turns.begin()
        return [loss for losses in self._all(self._learn_in_turn, hands) for loss in losses]

    def _learn_in_turn(self, model: Model, shares: Sequence[tuple[int, Batch]]) -> list[Loss]:
        losses = []
        for number, share in shares:
            with self._turns.of(number):
                loss = self.task.loss(model, share)
                loss.total.backward()
            losses.append(Loss(loss.total.detach(), loss.count, loss.shown))
        return losses

    def _all(self, work: Callable[[Model, Work], Result], given: Sequence[Work]) -> list[Result]:
        """What every double makes of what it is given. If one fails, the others come to their end first."""
        doubles = self._doubles[: len(given)]
        futures = [self._pool.submit(work, *each) for each in zip(doubles, given, strict=True)]
        wait(futures)
        return [future.result() for future in futures]

    @cached_property
    def _turns(self) -> "_Turns":
        return _Turns(self._parameters)

    def gather(self) -> None: ...
    def spread(self) -> None: ...


class _Turns:
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


def _double(model: Model) -> Model:
    """Other modules, the same weights."""
    double = copy.deepcopy(model, {id(p): p for p in model.parameters()})
    generator = torch.Generator()
    for part in double.modules():
        if isinstance(part, Dropout):
            part.generator = generator
    return double


def _wake(double: Model, training: bool) -> None:
    """Ready for an update, and for other draws than before."""
    if double.training != training:
        double.train(training)
    seed = int(torch.randint(2**63 - 1, ()))
    for part in double.modules():
        if isinstance(part, Dropout) and part.generator is not None:
            part.generator.manual_seed(seed)
            return  # they share it


def _sum(losses: Sequence[Loss]) -> Loss:
    shown: Counter[str] = Counter()
    for loss in losses:
        shown.update(loss.shown)
    total = torch.stack([loss.total for loss in losses]).sum()
    return Loss(total, sum(loss.count for loss in losses), dict(shown))
