"""Build a model from its config."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from torch import Tensor, nn

from saccade.config import Config, Count, Given, Slot, build, plain, schema, wiring
from saccade.errors import BuildError, ConfigError
from saccade.inputs import Input, Tokens
from saccade.models.blocks import DropoutRates
from saccade.models.contracts import Decoder, Encoder
from saccade.models.initializations import DefaultInitialization, InitializationSlot, initialize
from saccade.models.recurrent import RecurrentDecoder, RecurrentEncoder
from saccade.models.stacked import Stacked
from saccade.parts.heads import Head, HeadSlot, TiedHead
from saccade.places import Memory
from saccade.shapes import Keep


def absent() -> None:
    """No such side: `model.encoder = "none"` makes a decoder-only model, `model.decoder = "none"` one whose head reads
    the encoder."""


ENCODERS: dict[str, Callable[..., Encoder | None]] = {
    "stacked": Stacked,
    "recurrent": RecurrentEncoder,
    "none": absent,
}
DECODERS: dict[str, Callable[..., Decoder | None]] = {
    "stacked": Stacked,
    "recurrent": RecurrentDecoder,
    "none": absent,
}

# What the head reads, which the task decides: the hidden states of the decoder or of the encoder, or the summary of the
# encoder's states.
Reads = Literal["decoder", "encoder", "summary"]


class ModelConfig(Config):
    """The table [model] of a recipe: the whole architecture."""

    dim: Count = 512
    encoder: Annotated[Callable[..., Encoder | None], Slot(ENCODERS)] = Stacked
    decoder: Annotated[Callable[..., Decoder | None], Slot(DECODERS)] = Stacked
    head: HeadSlot = TiedHead
    # One embedding table for encoder and decoder; auto: if both have an embedding, with equal options.
    shared_embeddings: Literal["auto", True, False] = "auto"
    dropout: DropoutRates = DropoutRates()
    init: InitializationSlot = DefaultInitialization


def sides_with_blocks(model: Any) -> dict[str, bool]:
    """Those of "encoder" and "decoder" whose kind in a config tree has blocks (a recurrent one, for example, has none),
    and whether these have cross-attention."""
    tree = model if isinstance(model, dict) else {}
    encoder, decoder = _kind_in(tree.get("encoder"), ENCODERS), _kind_in(tree.get("decoder"), DECODERS)
    sides = {
        "encoder": (schema(encoder, ENCODERS[encoder]), False),
        "decoder": (schema(decoder, DECODERS[decoder]), encoder != "none"),
    }
    return {side: has_cross for side, (options, has_cross) in sides.items() if "block" in options.model_fields}


def _kind_in(tree: Any, kinds: Mapping[str, Callable[..., object]]) -> str:
    """The kind of encoder or decoder that a config tree names; the default is the first of `kinds`."""
    kind = tree.get("kind") if isinstance(tree, dict) else tree
    name = kind.value if isinstance(kind, Given) else None
    return name if isinstance(name, str) and name in kinds else next(iter(kinds))


def expand_block(model: Any, sides: Mapping[str, bool]) -> list[Any]:
    """Two layers for the tree of a model in which `model.block` is set: one with `model.encoder.block` and
    `model.decoder.block`, and one with all else, which overrides it. `sides` are those that have blocks; `cross` is
    copied only to one with cross-attention."""
    if not isinstance(model, dict) or "block" not in model:
        return [model]
    block, rest = model["block"], {key: value for key, value in model.items() if key != "block"}
    is_table = isinstance(block, dict)
    without_cross = {key: value for key, value in block.items() if key != "cross"} if is_table else block
    return [{side: {"block": block if has_cross else without_cross} for side, has_cross in sides.items()}, rest]


class Model(nn.Module):
    """An encoder, a decoder (one of them may be None) and a head, which predicts tokens or labels from the hidden
    states of the decoder, or of the encoder if there is no decoder."""

    def __init__(self, encoder: Encoder | None, decoder: Decoder | None, head: Head):
        super().__init__()
        self.encoder, self.decoder, self.head = encoder, decoder, head

    def encode(self, source: Tensor, keep: Keep | None) -> Memory:
        """The output of the encoder, which the model must have."""
        assert self.encoder is not None
        return self.encoder.encode(source, keep)


def is_cross_attention(name: str) -> bool:
    """Whether this names a cross-attention of the decoder. The name of an attention map may end in `@1`, `@2`, … (a
    further pass through the same module)."""
    return name.startswith("decoder.") and name.partition("@")[0].endswith("cross")


def cross_attentions(model: Model) -> dict[str, int]:
    """The cross-attentions of the decoder: module name → number of heads."""
    return {
        name: getattr(part, "heads", 1)
        for name, part in model.named_modules()
        if is_cross_attention(name) and getattr(part, "attends", False)
    }


def shares_embeddings(config: ModelConfig) -> bool:
    """Whether encoder and decoder have one embedding table."""
    of_encoder, of_decoder = _embeddings(config)
    return config.shared_embeddings is not False and of_encoder is not None and of_encoder == of_decoder


def _embeddings(config: ModelConfig) -> Sequence[Any]:
    """The embeddings of encoder and decoder as tables; None for a side that has none."""
    return [plain(side).get("embedding") for side in (config.encoder, config.decoder)]


def assemble(
    config: ModelConfig, source: Input, target: int, reads: Reads = "decoder", has_labels: bool = False
) -> Model:
    """Build the model. An option that cannot be built raises a ConfigError with its key.

    The encoder reads `source`. `target` is the number of target tokens or, with `has_labels`, of labels. The head reads
    what `reads` names.
    """
    common = {"dim": config.dim, "dropouts": config.dropout}
    try:
        # an encoder makes a summary only where it is read, so that a pool without effect is noticed
        summary = reads == "summary" or "reads_summary" in wiring(config.decoder)
        encoder = build(config.encoder, "encoder", input=source, summary=summary, **common)
        decoder = build(
            config.decoder,
            "decoder",
            input=Tokens(target),
            causal=True,
            cross_attention=encoder is not None,
            reads_summary=encoder is not None,
            **common,
        )
        _check_sides(encoder, decoder, reads)
        _check_shared_embeddings(config, source, target)
        if encoder is not None and decoder is not None and shares_embeddings(config):
            decoder.embedding = encoder.embedding
        side, values = (decoder, Tokens(target)) if reads == "decoder" else (encoder, source)
        tied = {}
        if side is not None and values == Tokens(target) and not has_labels:  # it embeds what the head predicts
            tied = {"tied_weight": side.embedding.tied_weight}
        head = build(config.head, "head", vocabulary=target, dim=config.dim, **tied)
        initialization = build(config.init, "init")
    except BuildError as error:
        raise ConfigError(f"{'.'.join(('model', *error.key))}: {error.reason}") from None
    model = Model(encoder, decoder, head)
    if encoder is not None:  # a part says that it reads the states of all layers with `reads_layers = True`
        encoder.keeps_layers = any(getattr(part, "reads_layers", False) for part in model.modules())
    initialize(model, initialization)
    return model


def _check_sides(encoder: Encoder | None, decoder: Decoder | None, reads: Reads) -> None:
    """Refuse an encoder or decoder that the task needs and that is missing, and a decoder that nothing reads."""
    if reads == "decoder" and decoder is None:
        raise BuildError('the task generates text and needs a decoder; choose another kind than "none"', ("decoder",))
    if reads != "decoder" and encoder is None:
        raise BuildError('the task predicts labels from an encoder; choose another kind than "none"', ("encoder",))
    if reads != "decoder" and decoder is not None:
        raise BuildError(
            'has no effect, because the task predicts labels from the encoder; set model.decoder = "none"', ("decoder",)
        )


def _check_shared_embeddings(config: ModelConfig, source: Input, target_vocabulary: int) -> None:
    """Refuse embeddings that cannot be shared, and a setting without effect."""
    of_encoder, of_decoder = _embeddings(config)
    reason = None
    if config.shared_embeddings != "auto" and (of_encoder is None or of_decoder is None):
        reason = 'has no effect, because not both sides have an embedding; leave it out, or set it to "auto"'
    elif config.shared_embeddings is True and of_encoder != of_decoder:
        reason = (
            f"the encoder's embedding is {of_encoder} and the decoder's {of_decoder}; make them equal, or leave "
            "model.shared_embeddings out"
        )
    elif shares_embeddings(config) and isinstance(source, Tokens) and source.vocabulary != target_vocabulary:
        reason = (
            f"needs one vocabulary for both languages, but the source has {source.vocabulary} tokens and the target "
            f"{target_vocabulary}; set data.joint=true or model.shared_embeddings=false"
        )
    if reason:
        raise BuildError(reason, ("shared_embeddings",))
