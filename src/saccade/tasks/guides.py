"""Guided alignment: one attention head is trained to attend to the source words that a target word is aligned with
(Chen et al. 2016; Garg et al. 2019). The links come with the training data (`links` of the source `pairs`), or are
computed from it by a statistical aligner.

A guided model also learns to translate much sooner: without a guide, learning where to attend takes most of the time.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import Natural, NotNegative, Slot, suggestion
from saccade.data.batches import Batch, Padded
from saccade.errors import BuildError
from saccade.models.assemble import Model, cross_attentions
from saccade.models.submodules import submodule
from saccade.notes import RecordingModule
from saccade.shapes import Float

MIN_ATTENTION_WEIGHT = 1e-6  # keeps the logarithm of a zero weight finite


class Unguided:
    """No guided head."""


class GuidedHead:
    """Adds `weight` × the cross-entropy between the links of a target word and the weights of one attention head.

    With `step = "input"` the weights are those of the step whose input is the word, with "output" those of the step
    whose output it is. A word without links is linked to the end symbol; one that has only a possible link is linked
    half to it and half to the end symbol. `attention` is the module name, such as decoder.layers.1.cross; "" is the
    penultimate cross-attention of the decoder, or the only one.
    """

    name = "guide"

    def __init__(
        self,
        *,
        attention: str = "",
        head: Natural = 0,
        weight: NotNegative = 0.3,
        step: Literal["input", "output"] = "input",
    ):
        self.attention_name, self.head, self.weight = attention, head, weight
        self.step: Literal["input", "output"] = step

    def attention(self, model: Model) -> RecordingModule:
        return submodule(model, self.path(model), RecordingModule)

    def path(self, model: Model) -> str:
        """The module name of the guided attention."""
        heads = cross_attentions(model)
        if not heads:
            raise BuildError("needs a decoder with cross-attention; leave task.guide out", ("guide",))
        if self.attention_name and self.attention_name not in heads:
            raise BuildError(
                f"there is no cross-attention '{self.attention_name}'" + suggestion(self.attention_name, heads),
                ("guide", "attention"),
            )
        path = self.attention_name or penultimate(heads)
        if self.head >= heads[path]:
            raise BuildError(f"{path} has heads 0 to {heads[path] - 1}, got {self.head}", ("guide", "head"))
        return path

    def cost(self, weights: Float[Tensor, "B H T S"], batch: Batch) -> Float[Tensor, "B T"]:
        assert batch.links is not None  # set by `Translation.prepare`
        assert batch.source is not None
        links = _link_rest_to_end(batch.links, batch.source)
        if self.step == "input":  # a word is the input of the step after the one that outputs it
            links = F.pad(links, (0, 0, 1, 0))[:, :-1]
        return -self.weight * (links * weights[:, self.head].clamp(min=MIN_ATTENTION_WEIGHT).log()).sum(-1)


def penultimate(names: Iterable[str]) -> str:
    """The penultimate name, or the only one. Among the decoder's cross-attentions it is the one that usually aligns
    best (Garg et al. 2019)."""
    return [*names][-2:][0]


def _link_rest_to_end(links: Float[Tensor, "B T S"], source: Padded) -> Float[Tensor, "B T S"]:
    """Link each target word to the source's end symbol too, with such a weight that its links sum to 1."""
    rows, positions = source.values.shape[:2]
    keep = source.keep
    lengths = torch.full((rows,), positions, device=links.device) if keep is None else keep.sum(-1)
    end = F.one_hot(lengths - 1, positions).to(links.dtype)
    return links + (1 - links.sum(-1, keepdim=True)) * end[:, None]


GUIDES: dict[str, Callable[..., Unguided | GuidedHead]] = {"none": Unguided, "head": GuidedHead}

GuideSlot = Annotated[Callable[..., Unguided | GuidedHead], Slot(GUIDES)]
