"""Config → model. The only file that knows both sides."""

from typing import Annotated, Any, cast

from torch import nn

from saccade.config import Config, Count, Given, Rate, Slot, build, merge, plain, schema
from saccade.errors import BuildError, ConfigError
from saccade.models.blocks import Dropouts
from saccade.models.contracts import Decoder, Encoder
from saccade.models.recurrent import RecurrentDecoder, RecurrentEncoder
from saccade.models.stacked import Stacked
from saccade.parts.heads import Head, HeadSlot, TiedHead

ENCODERS = {"stacked": Stacked, "recurrent": RecurrentEncoder}
DECODERS = {"stacked": Stacked, "recurrent": RecurrentDecoder}


class DropoutRates(Config):
    """How much is dropped where, while training."""

    attention: Rate = 0.0
    residual: Rate = 0.1
    feed_forward: Rate = 0.0
    embedding: Rate = 0.1


class ModelConfig(Config):
    """The whole architecture."""

    dim: Count = 512
    encoder: Annotated[Any, Slot(ENCODERS)] = Stacked
    decoder: Annotated[Any, Slot(DECODERS)] = Stacked
    head: HeadSlot = TiedHead
    shared_embeddings: bool = True
    dropout: DropoutRates = DropoutRates()


def spread_block(model: Any) -> Any:
    """`model.block` lies under `model.encoder.block` and `model.decoder.block`, so an overlay says a thing once. A side
    that is said to be of a kind without blocks is left alone."""
    if not isinstance(model, dict) or "block" not in model:
        return model
    block, rest = model["block"], {key: value for key, value in model.items() if key != "block"}
    kinds = {"encoder": ENCODERS, "decoder": DECODERS}
    sides = [side for side, table in kinds.items() if "block" in _options_of(table, rest.get(side))]
    return merge({side: {"block": block} for side in sides}, rest)


def _options_of(table: dict[str, Any], side: Any) -> Any:
    """The options of the kind that a layer names; of the default where it names none."""
    kind = side.get("kind") if isinstance(side, dict) else side
    name = kind.value if isinstance(kind, Given) and kind.value in table else next(iter(table))
    return schema(name, table[name]).model_fields


class Model(nn.Module):
    """An encoder reads, a decoder writes if the task has one, a head chooses words or labels."""

    def __init__(self, encoder: Encoder, decoder: Decoder | None, head: Head):
        super().__init__()
        self.encoder, self.decoder, self.head = encoder, decoder, head


def is_cross_attention(name: str) -> bool:
    """Whether the attention of this name looks at the source while the decoder writes."""
    return name.startswith("decoder.") and name.partition("@")[0].endswith("cross")


def cross_attentions(model: Model) -> dict[str, int]:
    """The attentions of a decoder to its source by name, and how many heads each has."""
    return {
        name: getattr(part, "heads", 1)
        for name, part in model.named_modules()
        if is_cross_attention(name) and getattr(part, "attends", False)
    }


def assemble(config: ModelConfig, source: int, target: int, *, frames: bool = False, writes: bool = True) -> Model:
    """Build the model, or say which key stands in the way.

    `source` is the size of the vocabulary that is read, or the width of its frames; `target` is how many words or
    labels there are to choose from. Without `writes` there is no decoder: the head reads the encoder.
    """
    site = {"dim": config.dim, "dropouts": Dropouts(**plain(config.dropout))}
    read = {"frames": source} if frames else {"vocabulary": source}
    try:
        encoder = build(config.encoder, "encoder", **read, **site)
        if writes:
            decoder = build(config.decoder, "decoder", vocabulary=target, causal=True, reads=True, **site)
            if config.shared_embeddings:
                decoder.embedding = _shared(config, encoder, source, target)
            tied = {"tied_weight": decoder.embedding.tied_weight}
        else:
            decoder, tied = None, {}
        head = build(config.head, "head", vocabulary=target, dim=config.dim, **tied)
    except BuildError as refusal:
        raise ConfigError(f"{'.'.join(('model', *refusal.key))}: {refusal.reason}") from None
    return Model(encoder, decoder, cast(Head, head))


def _shared(config: ModelConfig, encoder: Encoder, source_vocabulary: int, target_vocabulary: int) -> Any:
    if source_vocabulary != target_vocabulary:
        raise BuildError(
            f"needs one vocabulary for both languages, but the source has {source_vocabulary} tokens and the target "
            f"{target_vocabulary}; set data.joint=true or model.shared_embeddings=false",
            ("shared_embeddings",),
        )
    kinds = [plain(side.options["embedding"]) for side in (config.encoder, config.decoder)]
    if kinds[0] != kinds[1]:
        raise BuildError(
            f"the encoder's embedding is {kinds[0]} and the decoder's {kinds[1]}; make them equal, or set "
            "model.shared_embeddings=false",
            ("shared_embeddings",),
        )
    return encoder.embedding
