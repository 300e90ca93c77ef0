"""Losses are sums with counts: only the training loop divides, once, over all the batches of an update."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import Tensor

from saccade.data.batches import Batch
from saccade.models.assemble import Model
from saccade.notes import Notes, Part, listen
from saccade.parts.normalizers import SampledPart
from saccade.shapes import Bool, Float


@dataclass(frozen=True)
class Loss:
    """`total` is to be differentiated; `count` is what it is a sum over; `shown` are sums for the log."""

    total: Float[Tensor, ""]
    count: int
    shown: dict[str, float] = field(default_factory=dict)


def next_token(model: Model, batch: Batch, smoothing: float, penalties: "Sequence[Penalty]" = ()) -> Loss:
    """The cost of each target token, given the source and the tokens before it. Padding costs nothing."""
    with auxiliary_losses(model, penalties) as heard:
        hidden, target = teacher_forced_hidden(model, batch)
    total, each = model.head.loss(hidden, target, smoothing)
    return heard.added_to(Loss(total, target.shape[0], {"cost": float(each.sum())}), each, batch)


def next_token_r_drop(
    model: Model, batch: Batch, smoothing: float, penalties: "Sequence[Penalty]", r_drop: float
) -> Loss:
    """The mean cost of going through a batch twice, with other draws of dropout, and that much of what the two answers
    are apart (R-Drop: Liang et al. 2021; half of the sum that they have)."""
    twice = batch.repeated()
    with auxiliary_losses(model, penalties) as heard:
        hidden, target = teacher_forced_hidden(model, twice)
    count = target.shape[0] // 2
    total, each = model.head.loss(interleave_halves(hidden), interleave_halves(target), smoothing, r_drop)
    each = each.view(count, 2).t().flatten()
    loss = heard.added_to(Loss(total, count, {"cost": float(each.sum())}), each, twice)
    return Loss(loss.total / 2, count, {name: cost / 2 for name, cost in loss.shown.items()})


def interleave_halves(rows: Tensor) -> Tensor:
    """The rows of the second half, each after its like of the first."""
    return rows.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)


def token_labels(model: Model, batch: Batch, smoothing: float) -> Loss:
    """The cost of the label of each place that has one."""
    with auxiliary_losses(model) as heard:
        states = model.encoder.encode(batch.source.values, batch.source.keep).states
    keep, labels = batch.outputs.keep, batch.outputs.values
    hidden = states.flatten(0, 1) if keep is None else states[keep]
    target = labels.flatten() if keep is None else labels[keep]
    total, each = model.head.loss(hidden, target, smoothing)
    return heard.added_to(Loss(total, target.shape[0], {"cost": float(each.sum())}), each, batch)


def sequence_label(model: Model, batch: Batch, smoothing: float) -> Loss:
    """The cost of the one label of each sequence."""
    with auxiliary_losses(model) as heard:
        summary = model.encoder.encode(batch.source.values, batch.source.keep).summary
    total, each = model.head.loss(summary, batch.outputs.values[:, 0], smoothing)
    return heard.added_to(Loss(total, each.shape[0], {"cost": float(each.sum())}), each, batch)


def teacher_forced_hidden(model: Model, batch: Batch) -> tuple[Float[Tensor, "n D"], Tensor]:
    """One forced pass: the hidden states that should say the real target tokens, and those tokens."""
    memory = model.encoder.encode(batch.source.values, batch.source.keep)
    assert model.decoder is not None
    assert batch.inputs is not None
    state = model.decoder.start(memory, batch.inputs.values.shape[0])
    hidden, _ = model.decoder.step(batch.inputs.values, state, batch.inputs.keep)
    keep = batch.outputs.keep
    if keep is None:
        return hidden.flatten(0, 1), batch.outputs.values.flatten()
    return hidden[keep], batch.outputs.values[keep]


# ── what is added: costs of parts, wagers settled by what followed, penalties on where one looks ─────


class Penalty(Protocol):
    """A cost that the task puts on the weights of one attention; `name` is what the log calls it."""

    name: str

    def attention(self, model: Model) -> Part: ...
    def cost(self, weights: Float[Tensor, "B H T S"], batch: Batch) -> Float[Tensor, "B T"]: ...


@contextmanager
def auxiliary_losses(model: Model, penalties: Sequence[Penalty] = ()) -> Iterator["AuxiliaryLosses"]:
    """Hear what parts have to say about the loss, and what penalties are put on. In use nothing is learned, so nobody
    is asked."""
    if not (model.training and torch.is_grad_enabled()):
        yield AuxiliaryLosses(model, {}, [])
        return
    with ExitStack() as stack:
        yield AuxiliaryLosses(
            model,
            {
                (side, kind): stack.enter_context(listen(getattr(model, side), kind))
                for side in ("encoder", "decoder")
                if getattr(model, side) is not None
                for kind in ("loss", "sampled")
            },
            [(each, stack.enter_context(listen(each.attention(model), "weights"))) for each in penalties],
        )


@dataclass(frozen=True)
class AuxiliaryLosses:
    """What was noted, by side of the model and kind of note; and the weights that penalties are put on."""

    model: Model
    notes: dict[tuple[str, str], Notes]
    penalties: list[tuple[Penalty, Notes]]

    def added_to(self, loss: Loss, each: Float[Tensor, "n"], batch: Batch) -> Loss:
        """The task's loss with what parts add to it; each name is shown with its sum."""
        total, shown = loss.total, dict(loss.shown)
        for (side, kind), notes in self.notes.items():
            for name, value in notes.maps().items():
                keep = _real(batch, side)
                cost = (
                    (value * keep[:, None, :, None]).sum()
                    if kind == "loss"
                    else self._policy_loss(side, name, value, each, batch)
                )
                total = total + cost
                shown[f"{side}.{name}"] = float(cost.detach())
        for penalty, notes in self.penalties:
            costs = [penalty.cost(weights, batch) * _real(batch, "decoder") for weights in notes.maps().values()]
            cost = torch.stack(costs).sum()
            total = total + cost
            shown[penalty.name] = float(cost.detach())
        return Loss(total, loss.count, shown)

    def _policy_loss(self, side: str, name: str, wager: Tensor, each: Float[Tensor, "n"], batch: Batch) -> Tensor:
        part = cast(SampledPart, getattr(self.model, side).get_submodule(name.partition("@")[0]))
        cost, count = _cost_to_go(each, batch, side)
        return part.policy_loss(wager, cost, count, _real(batch, side))


def _real(batch: Batch, side: str) -> Bool[Tensor, "B T"]:
    """Which places of a side are real."""
    values = batch.source if side == "encoder" or batch.inputs is None else batch.inputs
    shape = values.values.shape[:2]
    return torch.ones(shape, dtype=torch.bool, device=values.values.device) if values.keep is None else values.keep


def _cost_to_go(each: Float[Tensor, "n"], batch: Batch, side: str) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """For each place of a side, the cost of all tokens that a choice there could change, and their number: in a
    decoder its own token and those after it, in an encoder all of its row."""
    rows, steps = batch.outputs.values.shape[:2]
    keep = batch.outputs.keep
    keep = torch.ones(rows, steps, dtype=torch.bool, device=each.device) if keep is None else keep
    costs = each.new_zeros(rows, steps).masked_scatter(keep, each)
    both = torch.stack([costs, keep.to(each.dtype)])
    if side == "decoder":
        cost, count = both.flip(-1).cumsum(-1).flip(-1)
    else:
        cost, count = both.sum(-1, keepdim=True).expand(-1, -1, batch.source.values.shape[1])
    return cost, count
