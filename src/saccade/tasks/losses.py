"""Losses are sums with counts: only the training loop divides, once, over all the batches of an update."""

from dataclasses import dataclass, field

from torch import Tensor

from saccade.data.batches import Batch
from saccade.models.assemble import Model
from saccade.shapes import Float


@dataclass(frozen=True)
class Loss:
    """`total` is to be differentiated; `count` is what it is a sum over; `shown` are sums for the log."""

    total: Float[Tensor, ""]
    count: int
    shown: dict[str, float] = field(default_factory=dict)


def next_token(model: Model, batch: Batch, smoothing: float) -> Loss:
    """The cost of each target token, given the source and the tokens before it. Padding costs nothing."""
    hidden, target = forced_hidden(model, batch)
    total, each = model.head.loss(hidden, target, smoothing)
    return Loss(total, target.shape[0], {"cost": float(each.sum())})


def forced_hidden(model: Model, batch: Batch) -> tuple[Float[Tensor, "n D"], Tensor]:
    """One forced pass: the hidden states that should say the real target tokens, and those tokens."""
    memory = model.encoder.encode(batch.source.values, batch.source.keep)
    assert model.decoder is not None and batch.inputs is not None
    state = model.decoder.start(memory, batch.inputs.values.shape[0])
    hidden, _ = model.decoder.step(batch.inputs.values, state, batch.inputs.keep)
    keep = batch.outputs.keep
    if keep is None:
        return hidden.flatten(0, 1), batch.outputs.values.flatten()
    return hidden[keep], batch.outputs.values[keep]
