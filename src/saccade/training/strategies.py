"""Strategies: how the gradients of a batch are computed. In one process, by the model or by replicas in threads; on
several ranks, by a replica (DDP) or a shard (FSDP2) on each. Parameters keep the names they have in the model."""

import copy
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, Protocol, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from saccade.data.batches import Batch
from saccade.devices import fork_random_states
from saccade.models.assemble import Model
from saccade.runs.weights import named_tensors
from saccade.tasks.losses import Loss
from saccade.training.device_loss import LossFunction
from saccade.training.ranks import Ranks
from saccade.training.threads import ThreadedReplicas, can_thread

if TYPE_CHECKING:  # imported where a model is sharded, because the import takes a third of a second
    from torch.distributed.tensor import DTensor

Parallelism = Literal["replicated", "sharded"]


class Strategy(Protocol):
    """Computes the gradients of an update, batch by batch. After the last batch, `.grad` is the mean over ranks of each
    rank's sum of gradients.

    `model` is the one whose parameters are trained. It differs from the model that is validated and saved if it is
    sharded.
    """

    model: Model

    def backward(self, batch: Batch, last: bool) -> Loss:
        """Compute the loss of a batch and add its gradients to `.grad`. `last`: it is the last batch of the update."""
        ...

    def collect_weights(self) -> None:
        """Copy the trained weights into the complete model of rank 0, which validates and saves it."""
        ...

    def broadcast_weights(self) -> None:
        """Load the weights of rank 0's complete model on every rank."""
        ...


class SingleProcessStrategy:
    """Computes the gradients in a single process, in one Python thread and with the model itself."""

    def __init__(self, model: Model, task: LossFunction):
        self.model, self.task = model, task

    def backward(self, batch: Batch, last: bool) -> Loss:
        loss = self.task.loss(self.model, batch)
        loss.total.backward()
        return loss

    def collect_weights(self) -> None: ...
    def broadcast_weights(self) -> None: ...


class LossModule(nn.Module):
    """The loss as the `forward` of a module, because DDP and FSDP synchronize ranks around `forward`."""

    def __init__(self, model: Model, task: LossFunction):
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch) -> tuple[Tensor, int, dict[str, float]]:
        loss = self.task.loss(self.model, batch)
        if batch.idle:
            return loss.total * 0, 0, dict.fromkeys(loss.logged, 0.0)
        return loss.total, loss.count, loss.logged


class DistributedStrategy:
    """Computes the gradients on one of several ranks, for DDP and for FSDP2. `model` is trained; `whole` is the
    complete model, which is another object if `model` is sharded. `sync_gradients(last)` is a
    context in which gradients are averaged over ranks if `last`."""

    def __init__(
        self,
        whole: Model,
        model: Model,
        ranks: Ranks,
        loss_module: nn.Module,
        sync_gradients: Callable[[bool], AbstractContextManager[object]],
    ):
        self.whole, self.model, self.ranks = whole, model, ranks
        self.loss_module, self.sync_gradients = loss_module, sync_gradients
        tensors = named_tensors(model)[0].values()
        self.buffers = [t for t in tensors if not isinstance(t, nn.Parameter) and t.is_floating_point()]

    def backward(self, batch: Batch, last: bool) -> Loss:
        with self.sync_gradients(last):
            total, count, logged = self.loss_module(batch)
            total.backward()
        if last:
            self._average_buffers()
        return Loss(total.detach(), count, logged)

    def _average_buffers(self) -> None:
        """Set running values, such as the baseline of hard attention, to their mean over all ranks."""
        for tensor in self.buffers:
            tensor.copy_(torch.stack(self.ranks.all_gather(tensor)).mean(0))

    @torch.no_grad()
    def collect_weights(self) -> None:
        if self.whole is self.model and not self._sharded:
            return
        complete = named_tensors(self.whole)[0]
        for name, tensor in named_tensors(self.model)[0].items():
            value = full_tensor(tensor)  # a collective operation, though only rank 0 keeps the result
            if self.ranks.is_main:
                complete[name].copy_(value)

    @torch.no_grad()
    def broadcast_weights(self) -> None:
        own = named_tensors(self.model)[0]
        for name, value in self.ranks.broadcast_tensors(named_tensors(self.whole)[0] if self.ranks.is_main else {}):
            own[name].copy_(shard_like(own[name], value))

    @property
    def _sharded(self) -> bool:
        return any(is_sharded(parameter) for parameter in self.model.parameters())


def strategy_for(
    model: Model, task: LossFunction, parallelism: Parallelism, ranks: Ranks, example: Batch, dim: int
) -> Strategy:
    """The strategy for this process. `example` is any batch; it serves to find the weights that get gradients. `dim` is
    the width of the model."""
    if ranks.count == 1:
        threads = torch.get_num_threads()
        return (
            ThreadedReplicas(model, task, threads, dim)
            if threads > 1 and ranks.device.type == "cpu" and can_thread(model)
            else SingleProcessStrategy(model, task)
        )
    model.train()
    return replicated(model, task, ranks, example) if parallelism == "replicated" else sharded(model, task, ranks)


def replicated(model: Model, task: LossFunction, ranks: Ranks, example: Batch) -> Strategy:
    """DDP: every rank has the whole model; gradients are averaged over ranks during the backward pass."""
    loss_module = LossModule(model, task)
    trial_backward(loss_module, example, ranks.device)
    unused = any(p.grad is None for p in loss_module.parameters() if p.requires_grad)
    loss_module.zero_grad()
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # torch 2.13 renamed broadcast_buffers
        ddp = DistributedDataParallel(
            loss_module, broadcast_buffers=False, find_unused_parameters=unused, gradient_as_bucket_view=True
        )
    # The first backward pass determines the gradient buckets, and with them the order of the sums. It runs here, before
    # a new training and before a resumed one; otherwise their results would not be bit-identical.
    trial_backward(ddp, example, ranks.device)
    ddp.zero_grad()
    return DistributedStrategy(model, model, ranks, ddp, lambda last: nullcontext() if last else ddp.no_sync())


def trial_backward(loss_module: nn.Module, example: Batch, device: torch.device) -> None:
    """A forward and a backward pass that leave gradients, but restore buffers and the random state."""
    saved = {name: buffer.clone() for name, buffer in loss_module.named_buffers()}
    with fork_random_states(device):
        loss_module(example)[0].backward()
    for name, buffer in loss_module.named_buffers():
        if name in saved and saved[name].shape == buffer.shape:
            buffer.copy_(saved[name])


def sharded(whole: Model, task: LossFunction, ranks: Ranks) -> Strategy:
    """FSDP2: every rank keeps a shard of each weight, its gradient and its optimizer state. Rank 0 also has the
    complete model, which validation needs, in the memory of the CPU: it may not fit on one GPU."""
    from torch.distributed.fsdp import fully_shard

    model = copy.deepcopy(whole) if ranks.is_main else whole
    loss_module = LossModule(model.to(ranks.device), task)
    for name, part in model.named_modules():
        # A feed-forward holds most weights of a block and uses them only in its `forward`. An attention also uses its
        # weights in `start`, before `forward`, so it is gathered with the rest of the model.
        if name.rpartition(".")[2] == "feed_forward":
            fully_shard(part)
    fsdp = fully_shard(loss_module)  # the same module, with the methods of FSDP

    def sync_gradients(last: bool) -> AbstractContextManager[object]:
        fsdp.set_requires_gradient_sync(last)
        return nullcontext()

    return DistributedStrategy(whole, model, ranks, loss_module, sync_gradients)


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    module = sys.modules.get("torch.distributed.tensor")  # before its import nothing is sharded
    return module is not None and isinstance(tensor, module.DTensor)


def full_tensor(tensor: Tensor) -> Tensor:
    """The complete tensor, gathered from all ranks if it is sharded; on the CPU."""
    return (tensor.full_tensor() if is_sharded(tensor) else tensor).detach().cpu()


def shard_like(parameter: Tensor, value: Tensor) -> Tensor:
    """The shard of a complete value that this rank holds of the parameter; the value itself if it is not sharded."""
    value = value.to(parameter.device)
    if not is_sharded(parameter) or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
