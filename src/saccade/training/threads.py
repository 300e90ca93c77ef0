"""Several threads in one process: each takes a share of every batch and works on it with a core of its own.

Threads that share every operation wait for each other at its end, and a small model is thousands of small operations.
Threads that share the rows wait once an update; and a share's numbers stay nearer to its core.
"""

import copy
import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

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

Gradients = Sequence[Tensor | None]  # one a parameter, or none where it took no part


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
        hands = [shares[i::threads] for i in range(min(threads, len(shares)))]
        doubles = self._doubles[: len(hands)]
        for double in doubles[1:]:
            _wake(double, self.model.training)
        found = [*self._pool.map(self._learn, doubles, hands)]
        for gradients, _ in found:
            _add(self._parameters, gradients)
        return _sum([loss for _, loss in found])

    def _learn(self, model: Model, shares: Sequence[Batch]) -> tuple[Gradients, Loss]:
        gradients: Gradients = [None] * len(self._parameters)
        losses = []
        for share in shares:
            loss = self.task.loss(model, share)
            new = torch.autograd.grad(loss.total, self._parameters, allow_unused=True)
            gradients = [_plus(a, b) for a, b in zip(gradients, new, strict=True)]
            losses.append(Loss(loss.total.detach(), loss.count, loss.shown))
        return gradients, _sum(losses)

    def gather(self) -> None: ...
    def spread(self) -> None: ...


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


def _add(parameters: Sequence[nn.Parameter], gradients: Gradients) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = _plus(parameter.grad, gradient)


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """a + b, in the memory of a; what is not there counts as nothing."""
    if a is None or b is None:
        return b if a is None else a
    return a.add_(b)


def _sum(losses: Sequence[Loss]) -> Loss:
    shown: Counter[str] = Counter()
    for loss in losses:
        shown.update(loss.shown)
    total = torch.stack([loss.total for loss in losses]).sum()
    return Loss(total, sum(loss.count for loss in losses), dict(shown))
