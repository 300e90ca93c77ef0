"""A Transformer as other libraries describe it, and the config key that prevents its export to one of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from saccade.config import Choice
from saccade.errors import RunError
from saccade.formats.known_options import KnownOptions, why_unknown
from saccade.models.assemble import Model, ModelConfig
from saccade.models.blocks import Standard
from saccade.models.stacked import Stacked
from saccade.models.stacks import PlainStack
from saccade.parts.connections import PostNorm, PreNorm
from saccade.parts.dropout import Dropout, StochasticDepth
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.fast_linear import FastLinear
from saccade.parts.feed_forwards import GatedFeedForward, PlainFeedForward
from saccade.parts.fused_forms import has_hook
from saccade.parts.heads import LinearHead, TiedHead
from saccade.parts.mixers import MultiHead
from saccade.parts.normalizers import Softmax
from saccade.parts.norms import LayerNorm, RMSNorm
from saccade.parts.positions import GrowingTable, Learned, NoPosition, Sinusoidal
from saccade.parts.scores import Dot, ScaledDot
from saccade.recipe import Recipe

# The parts that a TransformerSide describes.
KNOWN_PARTS: KnownOptions = {
    Stacked: {"depth", "embedding", "position", "stack", "block", "exceptions", "pool"},
    TokenEmbedding: {"scaled"},
    Sinusoidal: set(),
    Learned: {"longest"},
    PlainStack: set(),
    Standard: {"self", "cross", "feed_forward", "connection", "norm"},
    MultiHead: {"heads", "key_width", "value_width", "score", "normalizer"},
    Dot: set(),
    ScaledDot: set(),
    Softmax: set(),
    PlainFeedForward: {"inner", "activation"},
    GatedFeedForward: {"inner", "activation"},
    PreNorm: {"stochastic_depth"},  # only in training
    PostNorm: {"stochastic_depth"},
    LayerNorm: {"eps"},
    RMSNorm: {"eps"},
    TiedHead: {"bias"},
    LinearHead: {"bias"},
}
# The classes of all modules in a model that is made of these parts.
KNOWN_MODULES = {
    *KNOWN_PARTS,
    *(Model, nn.ModuleList, nn.Identity, nn.Embedding, FastLinear),
    *(Dropout, StochasticDepth, GrowingTable, NoPosition),
}
KNOWN_MODEL_KEYS = {"dim", "encoder", "decoder", "head", "shared_embeddings", "dropout", "init"}


@dataclass(frozen=True)
class TransformerSide:
    """The options of an encoder or a decoder made of standard blocks."""

    depth: int
    heads: int
    inner: int
    activation: str
    is_gated: bool
    connection: str
    score: str
    position: str
    scaled: bool
    norm: str
    eps: float


@dataclass(frozen=True)
class SupportedKinds:
    """The kinds that a library supports, where libraries differ."""

    positions: tuple[str, ...]
    scores: tuple[str, ...]
    feed_forwards: tuple[str, ...] = ("plain",)
    norms: tuple[str, ...] = ("layer",)


def side_of(recipe: Recipe, name: str) -> TransformerSide:
    """The options of `encoder` or `decoder`, for which `why_not_transformer` found nothing."""
    options = getattr(recipe.model, name).options
    block = options["block"].options
    return TransformerSide(
        depth=options["depth"],
        heads=block["self"].options["heads"],
        inner=block["feed_forward"].options["inner"],
        activation=block["feed_forward"].options["activation"],
        is_gated=block["feed_forward"].kind == "gated",
        connection=block["connection"].kind,
        score=block["self"].options["score"].kind,
        position=options["position"].kind,
        scaled=options["embedding"].options["scaled"],
        norm=block["norm"].kind,
        eps=block["norm"].options["eps"],
    )


def why_not_transformer(recipe: Recipe, library: str, supported: SupportedKinds) -> str | None:
    """The first config key that `library` cannot represent, with the reason; None if there is none."""
    if not recipe.built_task.text_to_text:
        return f'task: {library} needs a model with a decoder; train with task = "translation"'
    unknown_keys = sorted(ModelConfig.model_fields.keys() - KNOWN_MODEL_KEYS)
    if unknown_keys:
        return f"model.{unknown_keys[0]}: the export to {library} does not know this key"
    for key, choice, kinds in _choices(recipe, supported):
        if choice.kind not in kinds:
            alternatives = " or ".join(map(repr, kinds))
            return f'{key}: {library} does not support "{choice.kind}"; train with {key} = {alternatives}'
        if reason := why_unknown(key, choice, KNOWN_PARTS, library):
            return reason
    for side in ("encoder", "decoder"):
        if getattr(recipe.model, side).options["exceptions"]:
            return f"model.{side}.exceptions: {library} has the same block in all layers; train without exceptions"
        reason = _unsupported_attention(recipe, side, library)
        if reason:
            return reason
    return None


def _choices(recipe: Recipe, supported: SupportedKinds) -> Iterator[tuple[str, Choice, tuple[str, ...]]]:
    """Key, choice and supported kinds of every part; outer parts first, because a recurrent encoder or decoder has no
    blocks."""
    for side in ("encoder", "decoder"):
        key, choice = f"model.{side}", getattr(recipe.model, side)
        yield key, choice, ("stacked",)
        yield f"{key}.embedding", choice.options["embedding"], ("tokens",)
        yield f"{key}.position", choice.options["position"], supported.positions
        yield f"{key}.stack", choice.options["stack"], ("plain",)
        yield f"{key}.block", choice.options["block"], ("standard",)
        block = choice.options["block"].options
        yield f"{key}.block.feed_forward", block["feed_forward"], supported.feed_forwards
        yield f"{key}.block.connection", block["connection"], ("pre", "post")
        yield f"{key}.block.norm", block["norm"], supported.norms
        for mixer in attention_names(side):
            yield f"{key}.block.{mixer}", block[mixer], ("multi_head",)
            yield f"{key}.block.{mixer}.score", block[mixer].options["score"], supported.scores
            yield f"{key}.block.{mixer}.normalizer", block[mixer].options["normalizer"], ("softmax",)
    head: Any = recipe.model.head
    yield "model.head", head, ("tied", "linear")


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


def check_modules(model: Model, library: str) -> None:
    """Refuse a model with a module that was changed after it was built from its recipe: an exporter reads the weights
    of a layer, not what another class or a hook computes with them."""
    for name, module in model.named_modules():
        if type(module) not in KNOWN_MODULES or has_hook(module):
            what = "has a hook" if type(module) in KNOWN_MODULES else f"is of the class {type(module).__name__}"
            raise RunError(
                f"{name}: the export to {library} does not know what this module computes: it {what}; export a model "
                "of the built-in classes, without hooks"
            )


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
