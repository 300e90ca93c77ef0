"""Learners: where the gradients of a batch come from. One process has the model; several have a copy of it each, or a
shard. The parameters of what learns have the names of the model's."""

import copy
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from saccade.data.batches import Batch
from saccade.models.assemble import Model
from saccade.runs.weights import named_tensors
from saccade.tasks.losses import Loss
from saccade.tasks.task import Task
from saccade.training.ranks import Ranks
from saccade.training.threads import ThreadedReplicas, can_thread

Distribution = Literal["replicated", "sharded"]


class Strategy(Protocol):
    """The contract. The gradients are the mean over all ranks of what each of them summed."""

    model: Model  # what learns

    def backward(self, batch: Batch, last: bool) -> Loss:
        """The loss of a batch, with its gradients added to those that are there; `last` of an update."""
        ...

    def collect_weights(self) -> None:
        """Bring what was learned into the lead's whole model, which is validated and saved."""
        ...

    def broadcast_weights(self) -> None:
        """Take over the weights of the lead's whole model."""
        ...


class SingleReplica:
    """The model itself."""

    def __init__(self, model: Model, task: Task):
        self.model, self.task = model, task

    def backward(self, batch: Batch, last: bool) -> Loss:
        loss = self.task.loss(self.model, batch)
        loss.total.backward()
        return loss

    def collect_weights(self) -> None: ...
    def broadcast_weights(self) -> None: ...


class LossModule(nn.Module):
    """A model with its task: ranks act together where `forward` is called, and a model has none."""

    def __init__(self, model: Model, task: Task):
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch) -> tuple[Tensor, int, dict[str, float]]:
        loss = self.task.loss(self.model, batch)
        if batch.idle:
            return loss.total * 0, 0, dict.fromkeys(loss.shown, 0.0)
        return loss.total, loss.count, loss.shown


class Replicated:
    """One of several ranks. `model` learns; `whole` is another one where that is sharded or on another device.
    `passing(last)` says whether gradients are passed on."""

    def __init__(
        self,
        whole: Model,
        model: Model,
        ranks: Ranks,
        costs: nn.Module,
        passing: Callable[[bool], AbstractContextManager[object]],
    ):
        self.whole, self.model, self.ranks, self.loss_module, self.sync_gradients = whole, model, ranks, costs, passing
        tensors = named_tensors(model)[0].values()
        self.buffers = [t for t in tensors if not isinstance(t, nn.Parameter) and t.is_floating_point()]

    def backward(self, batch: Batch, last: bool) -> Loss:
        with self.sync_gradients(last):
            total, count, shown = self.loss_module(batch.to(self.ranks.device))
            total.backward()
        if last:
            self._average_buffers()
        return Loss(total.detach(), count, shown)

    def _average_buffers(self) -> None:
        """On what is remembered from batch to batch, such as the baseline of hard attention: the mean of all ranks."""
        for tensor in self.buffers:
            tensor.copy_(torch.stack(self.ranks.all_gather(tensor)).mean(0))

    @torch.no_grad()
    def collect_weights(self) -> None:
        if self.whole is self.model and not self._sharded:
            return
        wanted = named_tensors(self.whole)[0]
        for name, tensor in named_tensors(self.model)[0].items():
            value = full_tensor(tensor)  # all ranks together, though one alone keeps it
            if self.ranks.is_main:
                wanted[name].copy_(value)

    @torch.no_grad()
    def broadcast_weights(self) -> None:
        mine = named_tensors(self.model)[0]
        for name, value in self.ranks.broadcast_tensors(named_tensors(self.whole)[0] if self.ranks.is_main else {}):
            mine[name].copy_(shard_like(mine[name], value))

    @property
    def _sharded(self) -> bool:
        return any(isinstance(parameter, DTensor) for parameter in self.model.parameters())


def strategy_for(model: Model, task: Task, how: Distribution, ranks: Ranks, example: Batch, dim: int) -> Strategy:
    """`example` is any batch: by it ranks find out which weights take part. `dim` is the model's width."""
    if ranks.count == 1:
        threads = torch.get_num_threads()
        return (
            ThreadedReplicas(model, task, threads, dim)
            if threads > 1 and can_thread(model)
            else SingleReplica(model, task)
        )
    model.train()
    return replicated(model, task, ranks, example) if how == "replicated" else sharded(model, task, ranks)


def replicated(whole: Model, task: Task, ranks: Ranks, example: Batch) -> Strategy:
    """Every rank has the whole model, and their gradients are summed while they are still being computed."""
    model = whole if ranks.device.type == "cpu" else copy.deepcopy(whole).to(ranks.device)
    costs = LossModule(model, task)
    trial_backward(costs, example.to(ranks.device))
    unused = any(p.grad is None for p in costs.parameters())
    costs.zero_grad()
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # torch 2.13 has another name for buffers
        spread = DistributedDataParallel(
            costs, broadcast_buffers=False, find_unused_parameters=unused, gradient_as_bucket_view=True
        )
    # The first backward pass settles how gradients are bundled, and so the order of the sums. That must lie behind a
    # training that begins as well as one that goes on, or their bits would differ.
    trial_backward(spread, example.to(ranks.device))
    spread.zero_grad()
    return Replicated(whole, model, ranks, spread, lambda last: nullcontext() if last else spread.no_sync())


def trial_backward(costs: nn.Module, example: Batch) -> None:
    """Forwards and backwards; only gradients are left of it."""
    before = {name: buffer.clone() for name, buffer in costs.named_buffers()}
    with torch.random.fork_rng():
        costs(example)[0].backward()
    for name, buffer in costs.named_buffers():
        if name in before and before[name].shape == buffer.shape:
            buffer.copy_(before[name])


def sharded(whole: Model, task: Task, ranks: Ranks) -> Strategy:
    """Every rank keeps a part of each weight, its gradient and what the optimizer knows of it. Only the lead has the
    whole model beside it, as translating with it would need too."""
    model = copy.deepcopy(whole) if ranks.is_main else whole
    costs = LossModule(model.to(ranks.device), task)
    for name, part in model.named_modules():
        if name.rpartition(".")[2] == "feed_forward":  # most of a block, and all it does is done in its `forward`;
            fully_shard(part)  # an attention takes up the memory before that, so it is fetched with the rest
    spread = fully_shard(costs)  # the same module, with new verbs

    def passing(last: bool) -> AbstractContextManager[object]:
        spread.set_requires_gradient_sync(last)
        return nullcontext()

    return Replicated(whole, model, ranks, costs, passing)


def full_tensor(tensor: Tensor) -> Tensor:
    """The whole of a tensor of which each rank may have a part."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


def shard_like(parameter: Tensor, value: Tensor) -> Tensor:
    """A whole value, of which every rank takes the part that it has of the parameter."""
    value = value.to(parameter.device)
    if not isinstance(parameter, DTensor) or value.shape != parameter.shape:
        return value
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
