"""The checks of heads and of the training loss fail on planted defects."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from contracts.checks import losses as loss_checks
from contracts.checks.heads import check_head_loss, check_head_memory
from contracts.checks.losses import check_losses_are_sums
from contracts.checks.models import check_shapes
from contracts.planted.defects import Check, Defect, Patch, assert_check_fails, each, on_model, patched
from contracts.variants import D, V
from saccade.inputs import Tokens
from saccade.parts import LinearHead, TiedHead, TokenEmbedding, heads
from saccade.parts.heads import ChunkedCrossEntropy
from saccade.parts.token_costs import TokenCost
from saccade.tasks import losses

pytestmark = pytest.mark.slow
# The original functions: the defects below call them after they are patched.
CROSS_ENTROPY, SYMMETRIC_KL = heads.cross_entropy, heads._symmetric_kl
TEACHER_FORCED_HIDDEN = losses.teacher_forced_hidden


class HeadAndEmbedding(nn.Module):
    """A head and the embedding whose table a tied head uses."""

    def __init__(self, kind: str, vocabulary: int = V) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = TokenEmbedding(Tokens(vocabulary), D)
        tied = kind == "tied"
        self.head = TiedHead(tied_weight=self.embedding.tied_weight) if tied else LinearHead(vocabulary, D)


def head_loss(kind: str, rows: int = 37, r_drop: float = 0.0) -> Check:
    def check() -> None:
        owner = HeadAndEmbedding(kind)
        check_head_loss(owner, owner.head, rows, V, TokenCost(0.1, r_drop))

    return check


def cross_entropy_of_all_logits(hidden: Any, weight: Any, bias: Any, target: Any, cost: TokenCost) -> Any:
    logits = F.linear(hidden, weight, bias)
    total = F.cross_entropy(logits, target, reduction="sum", label_smoothing=cost.smoothing)
    return total, F.cross_entropy(logits, target, reduction="none").detach()


def backward_without_loss_scale(ctx: Any, *grads: torch.Tensor) -> Any:
    return (*ctx.saved_tensors, None, None, None)


def weight_gradient_without_first_chunk(hidden: Any, weight: Any, bias: Any, target: Any, cost: TokenCost) -> Any:
    first = CROSS_ENTROPY(hidden[:8], weight.detach(), bias, target[:8], cost)
    rest = CROSS_ENTROPY(hidden[8:], weight, bias, target[8:], cost)
    return first[0] + rest[0], torch.cat([first[1], rest[1]])


def gradient_of_first_distribution_only(p: torch.Tensor, q: torch.Tensor, *buffers: Any) -> torch.Tensor:
    """`_symmetric_kl` stores both gradients in place; this one restores the second."""
    before = q.clone()
    divergence = SYMMETRIC_KL(p, q, *buffers)
    q.copy_(before)
    return divergence


def mean_loss(model: Any, batch: Any, cost: TokenCost) -> Any:
    loss = losses.next_token_loss(model, batch, cost)
    return replace(loss, total=loss.total / loss.count)


def hidden_with_padding(model: Any, batch: Any) -> Any:
    hidden, target = TEACHER_FORCED_HIDDEN(model, replace(batch, outputs=replace(batch.outputs, keep=None)))
    return hidden, target


def hidden_with_inputs_as_targets(model: Any, batch: Any) -> Any:
    inputs_as_outputs = replace(batch.outputs, values=batch.inputs.values)
    return TEACHER_FORCED_HIDDEN(model, replace(batch, outputs=inputs_as_outputs))


SUMS = on_model(check_losses_are_sums)

DEFECTS = [
    Defect(
        "a head that returns logits instead of log-probabilities",
        patched(TiedHead, "log_probs", lambda self, hidden: hidden @ self.tied_weight(hidden)[1].T),
        (on_model(check_shapes),),
    ),
    Defect(
        "a head without label smoothing",
        patched(
            heads, "cross_entropy", lambda h, w, b, t, cost: CROSS_ENTROPY(h, w, b, t, replace(cost, smoothing=0.0))
        ),
        (head_loss("tied"), head_loss("linear")),
    ),
    Defect(
        "R-Drop with a gradient for one of the two passes only",
        patched(heads, "_symmetric_kl", gradient_of_first_distribution_only),
        (head_loss("tied", 38, 1.7), head_loss("linear", 38, 1.7)),
    ),
    Defect(
        "a head whose gradient ignores the scale of the loss",
        patched(ChunkedCrossEntropy, "backward", staticmethod(backward_without_loss_scale)),
        (head_loss("tied"), head_loss("linear")),
    ),
    Defect(
        "a weight gradient without the first chunk",
        patched(heads, "cross_entropy", weight_gradient_without_first_chunk),
        (head_loss("tied"),),
    ),
    Defect(
        "a head that computes all logits at once",
        patched(heads, "cross_entropy", cross_entropy_of_all_logits),
        (lambda: check_head_memory(HeadAndEmbedding("tied", 211).head, 101, 211),),
    ),
    Defect("a loss that is a mean", patched(loss_checks, "next_token_loss", mean_loss), (SUMS,)),
    Defect(
        "decoder inputs as targets",
        patched(losses, "teacher_forced_hidden", hidden_with_inputs_as_targets),
        (SUMS,),
    ),
    Defect("padding in the loss", patched(losses, "teacher_forced_hidden", hidden_with_padding), (SUMS,)),
]


@each(DEFECTS)
def test_contract_fails_on_planted_defect(defect: Defect, check: Check, monkeypatch: Patch) -> None:
    assert_check_fails(defect, check, monkeypatch)
