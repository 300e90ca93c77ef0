"""Guided alignment: one head of one attention is told which source words belong to a target word (Chen et al. 2016;
Garg et al. 2019). The links come with the training data (`links` of the source `pairs`), or are counted from it.

A model that is told learns to translate much sooner, too: finding out where to look is what takes it longest."""

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import Natural, NotNegative, Slot, nearest
from saccade.data.batches import Batch, Padded
from saccade.errors import BuildError
from saccade.models.assemble import Model, cross_attentions
from saccade.notes import Part
from saccade.shapes import Float

MIN_ATTENTION_WEIGHT = 1e-6  # weight of a place that was not looked at at all


class Unguided:
    """Attention is left to itself."""


class GuidedHead:
    """Adds `weight` × the cross-entropy between the links, given or counted, and where a head looks, at the step whose
    input (or output) is the word; a word without links should look at the end symbol, one with a link that is only
    possible as much there as at its link. `attention` is its name in the model, such as decoder.layers.1.cross; "" is
    the last but one of those that look at the source, or the only one."""

    name = "guide"

    def __init__(
        self,
        *,
        attention: str = "",
        head: Natural = 0,
        weight: NotNegative = 0.3,
        step: Literal["input", "output"] = "input",
    ):
        self.chosen, self.head, self.weight = attention, head, weight
        self.step: Literal["input", "output"] = step

    def attention(self, model: Model) -> Part:
        return cast(Part, model.get_submodule(self.path(model)))

    def path(self, model: Model) -> str:
        """The name of the attention, or a refusal that says which there are."""
        there = cross_attentions(model)
        if not there:
            raise BuildError("the decoder has no attention to the source that could be guided", ("guide",))
        if self.chosen and self.chosen not in there:
            raise BuildError(
                f"there is no attention '{self.chosen}'" + nearest(self.chosen, there), ("guide", "attention")
            )
        path = self.chosen or last_but_one(there)
        if self.head >= there[path]:
            raise BuildError(f"{path} has heads 0 to {there[path] - 1}, got {self.head}", ("guide", "head"))
        return path

    def cost(self, weights: Float[Tensor, "B H T S"], batch: Batch) -> Float[Tensor, "B T"]:
        assert batch.links is not None  # `Translation.prepare` sees to it
        links = _or_end(batch.links, batch.source)
        if self.step == "input":  # a word is the input one step after it was the output
            links = F.pad(links, (0, 0, 1, 0))[:, :-1]
        return -self.weight * (links * weights[:, self.head].clamp(min=MIN_ATTENTION_WEIGHT).log()).sum(-1)


def last_but_one(names: Iterable[str]) -> str:
    """Where alignments are found most often (Garg et al. 2019); the only one, if there is one."""
    return [*names][-2:][0]


def _or_end(links: Float[Tensor, "B T S"], source: Padded) -> Float[Tensor, "B T S"]:
    """The links; whatever share is left belongs to the source's end."""
    rows, places = source.values.shape[:2]
    lengths = torch.full((rows,), places) if source.keep is None else source.keep.sum(-1)
    end = F.one_hot(lengths - 1, places).to(links.dtype)
    return links + (1 - links.sum(-1, keepdim=True)) * end[:, None]


GUIDES: dict[str, Callable[..., Unguided | GuidedHead]] = {"none": Unguided, "head": GuidedHead}

GuideSlot = Annotated[Callable[..., Unguided | GuidedHead], Slot(GUIDES)]
