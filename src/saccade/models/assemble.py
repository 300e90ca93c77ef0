"""Build a model from its config."""

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

from torch import nn

from saccade.config import Config, Count, Given, Slot, build, merge, plain, schema
from saccade.errors import BuildError, ConfigError
from saccade.models.blocks import DropoutRates
from saccade.models.contracts import Decoder, Encoder
from saccade.models.recurrent import RecurrentDecoder, RecurrentEncoder
from saccade.models.stacked import Stacked
from saccade.parts.embeddings import Embedding
from saccade.parts.heads import Head, HeadSlot, TiedHead

ENCODERS: dict[str, Callable[..., Encoder]] = {"stacked": Stacked, "recurrent": RecurrentEncoder}
DECODERS: dict[str, Callable[..., Decoder]] = {"stacked": Stacked, "recurrent": RecurrentDecoder}


class ModelConfig(Config):
    """The table [model] of a recipe: the whole architecture."""

    dim: Count = 512
    encoder: Annotated[Callable[..., Encoder], Slot(ENCODERS)] = Stacked
    decoder: Annotated[Callable[..., Decoder], Slot(DECODERS)] = Stacked
    head: HeadSlot = TiedHead
    shared_embeddings: bool = True
    dropout: DropoutRates = DropoutRates()


def expand_block(model: Any) -> Any:
    """Copy `model.block` of a config tree to `model.encoder.block` and `model.decoder.block`, which override it. An
    encoder or decoder of a kind without blocks, such as `recurrent`, is left as it is."""
    if not isinstance(model, dict) or "block" not in model:
        return model
    block, rest = model["block"], {key: value for key, value in model.items() if key != "block"}
    with_blocks = [
        side
        for side, kinds in (("encoder", ENCODERS), ("decoder", DECODERS))
        if "block" in _option_names(kinds, rest.get(side))
    ]
    return merge({side: {"block": block} for side in with_blocks}, rest)


def _option_names(kinds: Mapping[str, Callable[..., object]], tree: Any) -> Collection[str]:
    """The names of the options of the encoder or decoder kind that a config tree names. Without a kind: those of the
    default, the first of `kinds`."""
    kind = tree.get("kind") if isinstance(tree, dict) else tree
    name = kind.value if isinstance(kind, Given) and kind.value in kinds else next(iter(kinds))
    return schema(name, kinds[name]).model_fields


class Model(nn.Module):
    """An encoder, a decoder (None in labeling tasks) and a head, which predicts tokens or labels from the hidden states
    of the decoder, or of the encoder if there is no decoder."""

    def __init__(self, encoder: Encoder, decoder: Decoder | None, head: Head):
        super().__init__()
        self.encoder, self.decoder, self.head = encoder, decoder, head


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


def assemble(config: ModelConfig, source: int, target: int, *, frames: bool = False, has_decoder: bool = True) -> Model:
    """Build the model. An option that cannot be built raises a ConfigError with its key.

    `source` is the size of the source vocabulary or, with `frames`, the number of values per frame. `target` is the
    number of target tokens or labels. Without a decoder the head predicts from the encoder's output.
    """
    common = {"dim": config.dim, "dropouts": config.dropout}
    source_size = {"frame_width": source} if frames else {"vocabulary": source}
    try:
        encoder = build(config.encoder, "encoder", **source_size, **common)
        if has_decoder:
            decoder = build(config.decoder, "decoder", vocabulary=target, causal=True, cross_attention=True, **common)
            if config.shared_embeddings:
                decoder.embedding = _shared_embedding(config, encoder, source, target)
            tied = {"tied_weight": decoder.embedding.tied_weight}
        else:
            decoder, tied = None, {}
        head = build(config.head, "head", vocabulary=target, dim=config.dim, **tied)
    except BuildError as error:
        raise ConfigError(f"{'.'.join(('model', *error.key))}: {error.reason}") from None
    return Model(encoder, decoder, head)


def _shared_embedding(
    config: ModelConfig, encoder: Encoder, source_vocabulary: int, target_vocabulary: int
) -> Embedding:
    """The encoder's embedding, after checking that the decoder can use it."""
    if source_vocabulary != target_vocabulary:
        raise BuildError(
            f"needs one vocabulary for both languages, but the source has {source_vocabulary} tokens and the target "
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
