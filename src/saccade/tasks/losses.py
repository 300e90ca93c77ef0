"""Losses. Each is a sum over tokens, with their number. Only the training loop divides, once per update, by the number
of tokens in all batches of the update."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import Tensor

from saccade.data.batches import Batch
from saccade.models.assemble import Model
from saccade.notes import Notes, RecordingModule, listen
from saccade.parts.normalizers import SampledPart
from saccade.parts.token_costs import CROSS_ENTROPY, TokenCost
from saccade.places import Memory
from saccade.shapes import Bool, Float


@dataclass(frozen=True)
class Loss:
    """`total` is differentiated, `count` is the number of tokens or labels it sums over, and `logged` holds sums for
    the log by name; "cost" is the cross-entropy without label smoothing."""

    total: Float[Tensor, ""]
    count: int
    logged: dict[str, float] = field(default_factory=dict)


def next_token_loss(
    model: Model, batch: Batch, cost: TokenCost = CROSS_ENTROPY, penalties: "Sequence[Penalty]" = ()
) -> Loss:
    """The summed cross-entropy of the target tokens under teacher forcing. Padding is excluded."""
    with auxiliary_losses(model, penalties) as auxiliary:
        hidden, target = teacher_forced_hidden(model, batch)
        total, token_costs = model.head.loss(hidden, target, cost)
    return auxiliary.added_to(Loss(total, target.shape[0], {"cost": float(token_costs.sum())}), token_costs, batch)


def r_drop_loss(model: Model, batch: Batch, cost: TokenCost, penalties: "Sequence[Penalty]" = ()) -> Loss:
    """R-Drop (Liang et al. 2021): two forward passes with different dropout masks. The loss is half of the paper's sum
    over both passes: the mean of their cross-entropies plus cost.r_drop · (KL(p‖q) + KL(q‖p)) / 4."""
    twice = batch.doubled()
    with auxiliary_losses(model, penalties) as auxiliary:
        hidden, target = teacher_forced_hidden(model, twice)
        total, token_costs = model.head.loss(interleave_halves(hidden), interleave_halves(target), cost)
    count = target.shape[0] // 2
    token_costs = token_costs.view(count, 2).t().flatten()
    loss = auxiliary.added_to(Loss(total, count, {"cost": float(token_costs.sum())}), token_costs, twice)
    return Loss(loss.total / 2, count, {name: cost / 2 for name, cost in loss.logged.items()})


def interleave_halves(rows: Tensor) -> Tensor:
    """Reorder rows a1 … an, b1 … bn to a1, b1, a2, b2, …"""
    return rows.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)


def token_label_loss(model: Model, batch: Batch, cost: TokenCost = CROSS_ENTROPY) -> Loss:
    """The summed cross-entropy of the labels of all positions that have one."""
    with auxiliary_losses(model) as auxiliary:
        states = encoded(model, batch).states
        keep, labels = batch.outputs.keep, batch.outputs.values
        hidden = states.flatten(0, 1) if keep is None else states[keep]
        target = labels.flatten() if keep is None else labels[keep]
        total, token_costs = model.head.loss(hidden, target, cost)
    return auxiliary.added_to(Loss(total, target.shape[0], {"cost": float(token_costs.sum())}), token_costs, batch)


def sequence_label_loss(model: Model, batch: Batch, cost: TokenCost = CROSS_ENTROPY) -> Loss:
    """The summed cross-entropy of one label per sequence, predicted from the encoder's summary."""
    with auxiliary_losses(model) as auxiliary:
        summary = encoded(model, batch).summary
        assert summary is not None
        total, token_costs = model.head.loss(summary, batch.outputs.values[:, 0], cost)
    return auxiliary.added_to(Loss(total, token_costs.shape[0], {"cost": float(token_costs.sum())}), token_costs, batch)


def encoded(model: Model, batch: Batch) -> Memory:
    """The output of the encoder for the sources of a batch."""
    assert batch.source is not None
    return model.encode(batch.source.values, batch.source.keep)


def teacher_forced_hidden(model: Model, batch: Batch) -> tuple[Float[Tensor, "n D"], Tensor]:
    """A teacher-forced pass: the decoder's hidden states at all positions with a target, and the target tokens
    there."""
    memory = None if model.encoder is None else encoded(model, batch)
    assert model.decoder is not None
    assert batch.inputs is not None
    state = model.decoder.start(memory, batch.inputs.values.shape[0])
    hidden, _ = model.decoder.step(batch.inputs.values, state, batch.inputs.keep)
    keep = batch.outputs.keep
    if keep is None:
        return hidden.flatten(0, 1), batch.outputs.values.flatten()
    return hidden[keep], batch.outputs.values[keep]


# ── auxiliary losses: noted by parts, policy gradients of sampled attention, penalties on attention weights ──


class Penalty(Protocol):
    """A loss that the task adds on the weights of one attention module. `name` is its name in the log."""

    name: str

    def attention(self, model: Model) -> RecordingModule: ...
    def cost(self, weights: Float[Tensor, "B H T S"], batch: Batch) -> Float[Tensor, "B T"]: ...


@contextmanager
def auxiliary_losses(model: Model, penalties: Sequence[Penalty] = ()) -> Iterator["AuxiliaryLosses"]:
    """Collect the notes of the model's parts that contribute to the loss, and the attention weights that penalties
    apply to. Outside training nothing is collected."""
    if not (model.training and torch.is_grad_enabled()):
        yield AuxiliaryLosses(model, {}, [])
        return
    with ExitStack() as stack:
        yield AuxiliaryLosses(
            model,
            {kind: stack.enter_context(listen(model, kind)) for kind in ("loss", "sampled")},
            [(penalty, stack.enter_context(listen(penalty.attention(model), "weights"))) for penalty in penalties],
        )


@dataclass(frozen=True)
class AuxiliaryLosses:
    """The collected notes by kind, and the weights of each penalty's attention."""

    model: Model
    notes: dict[str, Notes]
    penalties: list[tuple[Penalty, Notes]]

    def added_to(self, loss: Loss, token_costs: Float[Tensor, "n"], batch: Batch) -> Loss:
        """The task's loss plus all auxiliary losses; each is logged under its name. `token_costs` holds the
        cross-entropy of every target token. Padding is excluded: a note has the padding mask of its positions, which
        need not be those of the batch."""
        total, logged = loss.total, dict(loss.logged)
        for kind, notes in self.notes.items():
            masks = notes.masks()
            for name, value in notes.maps().items():
                keep = masks[name]
                cost = (
                    (value * keep[:, None, :, None]).sum()
                    if kind == "loss"
                    else self._policy_loss(name, value, keep, token_costs, batch)
                )
                total = total + cost
                logged[name] = float(cost.detach())
        for penalty, notes in self.penalties:
            masks = notes.masks()
            costs = [penalty.cost(weights, batch) * masks[name] for name, weights in notes.maps().items()]
            cost = torch.stack(costs).sum()
            total = total + cost
            logged[penalty.name] = float(cost.detach())
        return Loss(total, loss.count, logged)

    def _policy_loss(
        self, name: str, sampled: Tensor, keep: Bool[Tensor, "B T"], token_costs: Float[Tensor, "n"], batch: Batch
    ) -> Tensor:
        part = cast(SampledPart, self.model.get_submodule(name.partition("@")[0]))
        cost, count = _cost_to_go(token_costs, batch, keep.shape[1], causal=name.startswith("decoder."))
        return part.policy_loss(sampled, cost, count, keep)


def _cost_to_go(
    token_costs: Float[Tensor, "n"], batch: Batch, positions: int, causal: bool
) -> tuple[Float[Tensor, "B {positions}"], Float[Tensor, "B {positions}"]]:
    """For every position, the summed cost of all tokens that an action sampled there can influence, and their number:
    in a decoder, which is `causal`, the position's own token and all later ones, elsewhere all tokens of the row."""
    rows, steps = batch.outputs.values.shape[:2]
    keep = batch.outputs.keep
    keep = torch.ones(rows, steps, dtype=torch.bool, device=token_costs.device) if keep is None else keep
    costs = token_costs.new_zeros(rows, steps).masked_scatter(keep, token_costs)
    costs_and_counts = torch.stack([costs, keep.to(token_costs.dtype)])
    if causal:
        cost, count = costs_and_counts.flip(-1).cumsum(-1).flip(-1)
    else:
        cost, count = costs_and_counts.sum(-1, keepdim=True).expand(-1, -1, positions)
    return cost, count
