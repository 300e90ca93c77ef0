"""The loss of a batch on the device and in the precision of a training."""

from typing import Protocol

import torch

from saccade.data.batches import Batch
from saccade.devices import Precision, mixed_precision
from saccade.models.assemble import Model
from saccade.tasks.losses import Loss


class LossFunction(Protocol):
    """What a strategy needs of a task."""

    def loss(self, model: Model, batch: Batch) -> Loss: ...


class DeviceLoss:
    """The loss of a task on a device and in a precision, for batches that were made on the CPU."""

    def __init__(self, task: LossFunction, device: torch.device, precision: Precision):
        self.task, self.device = task, device
        self.precision: Precision = precision

    def loss(self, model: Model, batch: Batch) -> Loss:
        with mixed_precision(self.precision, self.device):  # autocast holds for one thread, so it is entered here
            return self.task.loss(model, batch.to(self.device))
