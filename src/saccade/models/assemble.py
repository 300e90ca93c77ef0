"""Build a model from its config."""

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal

from torch import Tensor, nn

from saccade.config import Config, Count, Given, Slot, build, factory_of, merge, plain, schema
from saccade.errors import BuildError, ConfigError
from saccade.inputs import Input, Tokens
from saccade.models.blocks import DropoutRates
from saccade.models.contracts import Decoder, Encoder
from saccade.models.initializations import DefaultInitialization, InitializationSlot, initialize
from saccade.models.recurrent import RecurrentDecoder, RecurrentEncoder
from saccade.models.stacked import Stacked
from saccade.parts.embeddings import Embedding
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
    shared_embeddings: bool = True
    dropout: DropoutRates = DropoutRates()
    init: InitializationSlot = DefaultInitialization


def sides_with_blocks(model: Any) -> list[str]:
    """Those of "encoder" and "decoder" whose kind in a config tree has blocks; a recurrent one, for example, has
    none."""
    tree = model if isinstance(model, dict) else {}
    return [
        side
        for side, kinds in (("encoder", ENCODERS), ("decoder", DECODERS))
        if "block" in _option_names(kinds, tree.get(side))
    ]


def expand_block(model: Any, sides: Collection[str]) -> Any:
    """Move `model.block` of a config tree to `model.encoder.block` and `model.decoder.block`, which override it.
    `sides` are those that have blocks. An encoder has no cross-attention, so `cross` is not copied to it."""
    if not isinstance(model, dict) or "block" not in model:
        return model
    block, rest = model["block"], {key: value for key, value in model.items() if key != "block"}
    is_table = isinstance(block, dict)
    of_encoder = {key: value for key, value in block.items() if key != "cross"} if is_table else block
    copies = {side: {"block": of_encoder if side == "encoder" else block} for side in sides}
    return merge(copies, rest)


def _option_names(kinds: Mapping[str, Callable[..., object]], tree: Any) -> Collection[str]:
    """The names of the options of the encoder or decoder kind that a config tree names. Without a kind: those of the
    default, the first of `kinds`."""
    kind = tree.get("kind") if isinstance(tree, dict) else tree
    name = kind.value if isinstance(kind, Given) and kind.value in kinds else next(iter(kinds))
    return schema(name, kinds[name]).model_fields


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


def assemble(config: ModelConfig, source: Input, target: int, reads: Reads = "decoder") -> Model:
    """Build the model. An option that cannot be built raises a ConfigError with its key.

    The encoder reads `source`. `target` is the number of target tokens or labels. The head reads what `reads` names.
    """
    common = {"dim": config.dim, "dropouts": config.dropout}
    try:
        # an encoder makes a summary only where it is read, so that a pool without effect is noticed
        summary = reads == "summary" or getattr(factory_of(config.decoder), "reads_summary", False)
        encoder = build(config.encoder, "encoder", input=source, summary=summary, **common)
        decoder = build(
            config.decoder,
            "decoder",
            input=Tokens(target),
            causal=True,
            cross_attention=encoder is not None,
            **common,
        )
        _check_sides(encoder, decoder, reads)
        if encoder is not None and decoder is not None and config.shared_embeddings:
            decoder.embedding = _shared_embedding(config, encoder, source, target)
        tied = {} if decoder is None else {"tied_weight": decoder.embedding.tied_weight}
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


def _shared_embedding(config: ModelConfig, encoder: Encoder, source: Input, target_vocabulary: int) -> Embedding:
    """The encoder's embedding, after checking that the decoder can use it."""
    if isinstance(source, Tokens) and source.vocabulary != target_vocabulary:
        raise BuildError(
            f"needs one vocabulary for both languages, but the source has {source.vocabulary} tokens and the target "
            f"{target_vocabulary}; set data.joint=true or model.shared_embeddings=false",
            ("shared_embeddings",),
        )
    of_encoder, of_decoder = (plain(side)["embedding"] for side in (config.encoder, config.decoder))
    if of_encoder != of_decoder:
        raise BuildError(
            f"the encoder's embedding is {of_encoder} and the decoder's {of_decoder}; make them equal, or set "
            "model.shared_embeddings=false",
            ("shared_embeddings",),
        )
    return encoder.embedding
