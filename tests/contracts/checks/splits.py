"""The contract of a split batch: its parts have the rows of the whole, and their losses and gradients sum to those of
the whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from contracts.checks.common import assert_close, perturbed
from contracts.variants import DEFAULT, NO_DROPOUT, V, named
from saccade.config import python_layer, resolve
from saccade.data.batches import (
    COLLATE_LABELS,
    COLLATE_PAIRS,
    COLLATE_PROMPTED,
    NO_LABEL,
    Batch,
    Collate,
    Corpus,
    Draws,
    Padded,
)
from saccade.data.masking import MaskSources
from saccade.data.tokenizers import SPECIAL
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, Reads, assemble
from saccade.tasks.losses import Loss, next_token_loss, sequence_label_loss, token_label_loss

LENGTHS = ((2, 5), (11, 3), (1, 1), (7, 9), (4, 8), (10, 2), (3, 4))  # of the source and the target of each row


@dataclass(frozen=True)
class SplitCase:
    """A collate function, a model and a loss for its batches, and the targets of sources and target lengths."""

    collate: Collate
    model: Callable[[], Model]
    loss: Callable[[Model, Batch], Loss]
    targets: Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def labeling_model(reads: Reads) -> Model:
    tree = {"dim": 22, "dropout": NO_DROPOUT, "head": "linear", "decoder": "none", "encoder": DEFAULT.tree["encoder"]}
    torch.manual_seed(0)
    return assemble(resolve(ModelConfig, [python_layer(tree)]).config, Tokens(V), V, reads)


def labels_of_first_subwords(sources: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A label for every third token only, never for the last one, and none at all in the shortest row."""
    return [
        np.array([V - 1 if t % 3 == 0 and t + 1 < len(source) else NO_LABEL for t in range(len(source))])
        for source in sources
    ]


def one_label(sources: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.array([len(source) % V]) for source in sources]


def random_targets(sources: Sequence[np.ndarray]) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.integers(len(SPECIAL), V, length) for _, length in LENGTHS]


def decoder_only() -> Model:
    return named("decoder-only").fresh()


CASES = {
    "pairs": SplitCase(COLLATE_PAIRS, DEFAULT.fresh, next_token_loss, random_targets),
    "masked pairs": SplitCase(MaskSources(COLLATE_PAIRS, 0.3), DEFAULT.fresh, next_token_loss, random_targets),
    "prompted": SplitCase(COLLATE_PROMPTED, decoder_only, next_token_loss, random_targets),
    "masked prompts": SplitCase(MaskSources(COLLATE_PROMPTED, 0.3), decoder_only, next_token_loss, random_targets),
    "labels with gaps": SplitCase(
        COLLATE_LABELS, lambda: labeling_model("encoder"), token_label_loss, labels_of_first_subwords
    ),
    "one label for each row": SplitCase(
        COLLATE_LABELS, lambda: labeling_model("summary"), sequence_label_loss, one_label
    ),
}


def check_split(case: SplitCase) -> None:
    random = np.random.default_rng(0)
    sources = [random.integers(len(SPECIAL), V, length) for length, _ in LENGTHS]
    corpus = Corpus(sources, case.targets(sources), case.collate)
    batch = corpus.batch(range(len(corpus)), Draws(seed=1, epoch=2))
    model = perturbed(case.model()).double().train()
    whole_loss, whole_gradients = summed(model, case, [batch])
    for count in (1, 2, 3, len(corpus)):
        parts = batch.split(count)
        check_rows(batch, parts)
        loss, gradients = summed(model, case, parts)
        assert loss.count == whole_loss.count, f"{count} parts have another number of targets"
        assert_close(loss.total, whole_loss.total, f"the loss of {count} parts")
        assert gradients.keys() == whole_gradients.keys()
        for name, gradient in gradients.items():
            assert_close(gradient, whole_gradients[name], f"the gradient of {name} in {count} parts")


def check_rows(batch: Batch, parts: Sequence[Batch]) -> None:
    """Each row has its values and its mask, cut to the longest row of its part; only padding is cut off."""
    assert tuple(row for part in parts for row in part.rows) == batch.rows, "the parts have other rows"
    first = 0
    for part in parts:
        end = first + len(part.rows)
        pairs = ((part.source, batch.source), (part.inputs, batch.inputs), (part.outputs, batch.outputs))
        for ours, theirs in pairs:
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                check_side(ours, theirs, slice(first, end))
        first = end


def check_side(ours: Padded, theirs: Padded, rows: slice) -> None:
    width = ours.values.shape[1]
    assert torch.equal(ours.values, theirs.values[rows, :width]), "other values"
    keep = keep_of(theirs)[rows]
    assert torch.equal(keep_of(ours), keep[:, :width]), "another mask"
    assert not keep[:, width:].any(), "more than padding is cut off"


def keep_of(side: Padded) -> Tensor:
    return torch.ones(side.values.shape[:2], dtype=torch.bool) if side.keep is None else side.keep


def summed(model: Model, case: SplitCase, batches: Sequence[Batch]) -> tuple[Loss, dict[str, Tensor]]:
    """The sums of the losses and of the gradients of some batches."""
    model.zero_grad()
    losses = [case.loss(model, batch) for batch in batches]
    for loss in losses:
        loss.total.backward()
    total = torch.stack([loss.total.detach() for loss in losses]).sum()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    return Loss(total, sum(loss.count for loss in losses)), gradients
