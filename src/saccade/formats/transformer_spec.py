"""A Transformer's shape as other libraries ask for it, or which key of the recipe has no counterpart there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from saccade.models.assemble import Model
    from saccade.recipe import Recipe


@dataclass(frozen=True)
class TransformerSide:
    """An encoder or a decoder of a stack of standard blocks."""

    depth: int
    heads: int
    inner: int
    activation: str
    connection: str
    score: str
    position: str
    scaled: bool
    eps: float


def side_of(recipe: "Recipe", name: str) -> TransformerSide:
    """What a side is like, once `obstacle` has found nothing in the way."""
    options = getattr(recipe.model, name).options
    block = options["block"].options
    return TransformerSide(
        depth=options["depth"],
        heads=block["self"].options["heads"],
        inner=block["feed_forward"].options["inner"],
        activation=block["feed_forward"].options["activation"],
        connection=block["connection"].kind,
        score=block["self"].options["score"].kind,
        position=options["position"].kind,
        scaled=options["embedding"].options["scaled"],
        eps=block["norm"].options["eps"],
    )


def why_not_transformer(
    recipe: "Recipe", there: str, positions: tuple[str, ...], scores: tuple[str, ...]
) -> str | None:
    """The first key that `there`, the name of a library, has no counterpart for."""
    if recipe.task.kind != "translation":  # type: ignore[attr-defined]
        return f'task: {there} is for models that write; train with task = "translation"'
    for key, kind, known in _kinds(recipe, positions, scores):
        if kind not in known:
            return f'{key}: {there} knows no "{kind}"; train with {key} = {" or ".join(map(repr, known))}'
    for side in ("encoder", "decoder"):
        found = _unequal(recipe, side, there)
        if found:
            return found
    return None


def _kinds(
    recipe: "Recipe", positions: tuple[str, ...], scores: tuple[str, ...]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Key, what stands there, what may stand there. From the outside in: a recurrent side has no blocks to look at."""
    for side in ("encoder", "decoder"):
        key, choice = f"model.{side}", getattr(recipe.model, side)
        yield key, choice.kind, ("stacked",)
        yield f"{key}.embedding", choice.options["embedding"].kind, ("tokens",)
        yield f"{key}.position", choice.options["position"].kind, positions
        yield f"{key}.stack", choice.options["stack"].kind, ("plain",)
        yield f"{key}.block", choice.options["block"].kind, ("standard",)
        block = choice.options["block"].options
        yield f"{key}.block.feed_forward", block["feed_forward"].kind, ("plain",)
        yield f"{key}.block.connection", block["connection"].kind, ("pre", "post")
        yield f"{key}.block.norm", block["norm"].kind, ("layer",)
        for mixer in attention_names(side):
            yield f"{key}.block.{mixer}", block[mixer].kind, ("multi_head",)
            yield f"{key}.block.{mixer}.score", block[mixer].options["score"].kind, scores
            yield f"{key}.block.{mixer}.normalizer", block[mixer].options["normalizer"].kind, ("softmax",)
    yield "model.head", recipe.model.head.kind, ("tied", "linear")  # type: ignore[attr-defined]


def attention_names(side: str) -> tuple[str, ...]:
    return ("self",) if side == "encoder" else ("self", "cross")


def _unequal(recipe: "Recipe", side: str, there: str) -> str | None:
    """Numbers that must agree."""
    key, block = f"model.{side}.block", getattr(recipe.model, side).options["block"].options
    for mixer in attention_names(side):
        options = block[mixer].options
        usual = recipe.model.dim // options["heads"]
        for width in ("key_width", "value_width"):
            if options[width] not in (0, usual):
                return f"{key}.{mixer}.{width}: {there} divides the width by the heads; set it to 0 and train anew"
        if options["heads"] != block["self"].options["heads"]:
            return f"{key}.{mixer}.heads: {there} has one number of heads a side; make it that of {key}.self.heads"
        if options["score"].kind != block["self"].options["score"].kind:
            return f"{key}.{mixer}.score: {there} has one score a side; make it that of {key}.self.score"
    return None


def head_parts(model: "Model") -> tuple[np.ndarray, np.ndarray | None]:
    """The table and the bias that make logits of hidden states."""
    head: Any = model.head
    decoder: Any = model.decoder
    linear = hasattr(head, "out")
    table, bias = (head.out.weight, head.out.bias) if linear else (decoder.embedding.table.weight, head.bias)
    return table.detach().numpy(), None if bias is None else bias.detach().numpy()
