"""A Transformer as other libraries describe it, and the config key that prevents its export to one of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from saccade.config import kind_of
from saccade.models.assemble import Model
from saccade.models.stacked import Stacked
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.heads import LinearHead, TiedHead
from saccade.recipe import Recipe


@dataclass(frozen=True)
class TransformerSide:
    """The options of an encoder or a decoder made of standard blocks."""

    depth: int
    heads: int
    inner: int
    activation: str
    connection: str
    score: str
    position: str
    scaled: bool
    eps: float


def side_of(recipe: Recipe, name: str) -> TransformerSide:
    """The options of `encoder` or `decoder`, for which `why_not_transformer` found nothing."""
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
    recipe: Recipe, library: str, positions: tuple[str, ...], scores: tuple[str, ...]
) -> str | None:
    """The first config key that `library` cannot represent, with the reason; None if there is none. `positions` and
    `scores` are the kinds that it supports."""
    if not recipe.built_task.text_to_text:
        return f'task: {library} needs a model with a decoder; train with task = "translation"'
    for key, kind, supported in _kinds(recipe, positions, scores):
        if kind not in supported:
            return f'{key}: {library} does not support "{kind}"; train with {key} = {" or ".join(map(repr, supported))}'
    for side in ("encoder", "decoder"):
        reason = _unsupported_attention(recipe, side, library)
        if reason:
            return reason
    return None


def _kinds(
    recipe: Recipe, positions: tuple[str, ...], scores: tuple[str, ...]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Key, its kind, and the supported kinds; outer parts first, because a recurrent encoder or decoder has no
    blocks."""
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
    yield "model.head", kind_of(recipe.model.head), ("tied", "linear")


def attention_names(side: str) -> tuple[str, ...]:
    return ("self",) if side == "encoder" else ("self", "cross")


def _unsupported_attention(recipe: Recipe, side: str, library: str) -> str | None:
    """The first option of an attention of the encoder or decoder that the library cannot represent, with the reason: a
    head width other than dim / heads, or heads or scores that differ between self- and cross-attention."""
    key, block = f"model.{side}.block", getattr(recipe.model, side).options["block"].options
    for mixer in attention_names(side):
        options = block[mixer].options
        default_width = recipe.model.dim // options["heads"]
        for width in ("key_width", "value_width"):
            if options[width] not in (0, default_width):
                return f"{key}.{mixer}.{width}: {library} always uses model.dim / heads; train with 0, which means this"
        if options["heads"] != block["self"].options["heads"]:
            return (
                f"{key}.{mixer}.heads: {library} has one number of heads for all attentions of the {side}; set it to "
                f"that of {key}.self.heads"
            )
        if options["score"].kind != block["self"].options["score"].kind:
            return (
                f"{key}.{mixer}.score: {library} has one score for all attentions of the {side}; set it to that of "
                f"{key}.self.score"
            )
    return None


def stacked_sides(model: Model) -> tuple[Stacked, Stacked]:
    """The encoder and the decoder of a model for which `why_not_transformer` found nothing."""
    assert isinstance(model.encoder, Stacked)
    assert isinstance(model.decoder, Stacked)
    return model.encoder, model.decoder


def embedding_table(side: Stacked) -> Tensor:
    assert isinstance(side.embedding, TokenEmbedding)
    return side.embedding.table.weight


def output_weights(model: Model) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the output layer: logits = hidden @ weight.T + bias."""
    assert isinstance(model.head, LinearHead | TiedHead)
    _, weight, bias = model.head.factors(embedding_table(stacked_sides(model)[1])[:1])
    return weight, bias
