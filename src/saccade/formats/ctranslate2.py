"""Export to CTranslate2: a folder that its library runs without torch. Pre-norm and post-norm Transformers with any
head."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.data.tokenizers import END, SPECIAL, START, UNKNOWN
from saccade.errors import remedy
from saccade.formats.ctranslate2_engine import CTranslate2Engine, EngineBuilder
from saccade.formats.exported import EXPORT_AGAIN, ExportableRun, file_copiers, read_exported, write_exported
from saccade.formats.transformer_spec import (
    SupportedKinds,
    TransformerSide,
    check_modules,
    embedding_table,
    output_weights,
    side_of,
    stacked_sides,
    why_not_transformer,
)
from saccade.models.blocks import Standard
from saccade.models.stacked import Stacked
from saccade.models.submodules import submodule
from saccade.parts.feed_forwards import GatedFeedForward, PlainFeedForward
from saccade.parts.mixers import MultiHead
from saccade.parts.norms import LayerNorm, RMSNorm
from saccade.parts.positions import Learned, sinusoid
from saccade.recipe import Recipe

CTRANSLATE2_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}
CTRANSLATE2_KINDS = SupportedKinds(
    positions=("sinusoidal", "learned"),
    scores=("dot", "scaled_dot"),
    feed_forwards=("plain", "gated"),
    norms=("layer", "rms"),
)
CTRANSLATE2_POSITIONS = 2048  # rows of the sinusoid table; sentences whose source or output may be longer go to torch


def why_not(recipe: Recipe) -> str | None:
    """The config key that prevents an export, with the reason; None if the model can be exported."""
    reason = why_not_transformer(recipe, "CTranslate2", CTRANSLATE2_KINDS)
    if reason:
        return reason
    if side_of(recipe, "encoder").eps != side_of(recipe, "decoder").eps:
        return "model.decoder.block.norm.eps: CTranslate2 has one eps for the whole model; set it to the encoder's"
    return None


def write(run: ExportableRun, folder: Path, quantization: str = "float32") -> None:
    """Write a CTranslate2 model, the tokenizers and the decode settings."""
    check_modules(run.model, "CTranslate2")
    spec = _model_spec(run)
    spec.validate()
    spec.optimize(quantization=quantization)
    encoder, decoder = stacked_sides(run.model)
    max_lengths = len(_position_encodings(encoder)), len(_position_encodings(decoder))
    with tempfile.TemporaryDirectory() as scratch:
        spec.save(scratch)
        write_exported(run, folder, f"ctranslate2-{quantization}", file_copiers(Path(scratch)), max_lengths)


def open(folder: Path, build_fallback: EngineBuilder | None = None) -> CTranslate2Engine:  # noqa: A001 - all formats have `open`
    """The engine that runs an exported folder. Inputs that may exceed its position tables go to the fallback engine."""
    with remedy(EXPORT_AGAIN):
        exported = read_exported(folder)
    return CTranslate2Engine(folder, exported, build_fallback)


# ── the model as a CTranslate2 specification ──


def _model_spec(run: ExportableRun) -> Any:
    from ctranslate2 import specs
    from ctranslate2.specs import transformer_spec

    encoder, decoder = side_of(run.recipe, "encoder"), side_of(run.recipe, "decoder")
    spec: Any = specs.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(encoder.depth, encoder.heads, **_style(encoder)),
        transformer_spec.TransformerDecoderSpec(decoder.depth, decoder.heads, **_style(decoder)),
    )
    encoder_module, decoder_module = stacked_sides(run.model)
    _fill_side(spec.encoder, spec.encoder.embeddings[0], encoder_module, encoder)
    _fill_side(spec.decoder, spec.decoder.embeddings, decoder_module, decoder)
    weight, bias = output_weights(run.model)
    spec.decoder.projection.weight = weight.detach().numpy()
    if bias is not None:
        spec.decoder.projection.bias = bias.detach().numpy()
    spec.register_source_vocabulary(run.codecs.source.vocabulary())
    spec.register_target_vocabulary(run.codecs.target.vocabulary())
    spec.config.unk_token, spec.config.eos_token = SPECIAL[UNKNOWN], SPECIAL[END]
    spec.config.bos_token = spec.config.decoder_start_token = SPECIAL[START]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = encoder.eps
    return spec


def _style(side: TransformerSide) -> dict[str, Any]:
    from ctranslate2.specs import common_spec

    activation = getattr(common_spec.Activation, CTRANSLATE2_ACTIVATIONS[side.activation])
    return {
        "pre_norm": side.connection == "pre",
        "activation": activation,
        "ffn_glu": side.is_gated,
        "rms_norm": side.norm == "rms",
    }


def _fill_side(spec: Any, embeddings: Any, module: Stacked, side: TransformerSide) -> None:
    embeddings.weight = _array(embedding_table(module))
    spec.scale_embeddings = side.scaled
    spec.position_encodings.encodings = _position_encodings(module)
    if side.connection == "pre":
        _fill_norm(spec.layer_norm, module.get_submodule("final_norm"))
    for layer, block in zip(spec.layer, module.layers, strict=True):
        assert isinstance(block, Standard)
        _fill_attention(layer.self_attention, block, "self", side.score)
        if block.mixers == ("self", "cross"):
            _fill_attention(layer.attention, block, "cross", side.score)
        _fill_feed_forward(layer.ffn, block.get_submodule("feed_forward"))
        _fill_norm(layer.ffn.layer_norm, block.get_submodule("residual_feed_forward.norm"))


def _fill_feed_forward(spec: Any, feed_forward: nn.Module) -> None:
    """In CTranslate2 the activation follows `linear_0`, and `linear_0_noact` is multiplied with its result."""
    if isinstance(feed_forward, GatedFeedForward):
        _fill_linear(spec.linear_0, feed_forward.gate)
        _fill_linear(spec.linear_0_noact, feed_forward.up)
    else:
        assert isinstance(feed_forward, PlainFeedForward)
        _fill_linear(spec.linear_0, feed_forward.up)
    _fill_linear(spec.linear_1, feed_forward.down)


def _fill_attention(spec: Any, block: Standard, name: str, score: str) -> None:
    """CTranslate2 has one matrix for projections of the same input: query, key and value in self-attention, key and
    value in cross-attention."""
    mixer = submodule(block, name, MultiHead)
    if name == "self":
        _fill_linear(spec.linear[0], mixer.query, mixer.key, mixer.value)
    else:
        _fill_linear(spec.linear[0], mixer.query)
        _fill_linear(spec.linear[1], mixer.key, mixer.value)
    _fill_linear(spec.linear[-1], mixer.out)
    _fill_norm(spec.layer_norm, block.get_submodule(f"residual_{name}.norm"))
    if score == "dot":
        spec.queries_scale = 1.0


def _fill_linear(spec: Any, *linears: nn.Linear) -> None:
    spec.weight = np.concatenate([_array(linear.weight) for linear in linears])
    if linears[0].bias is not None:
        spec.bias = np.concatenate([_array(linear.bias) for linear in linears])


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    assert isinstance(norm, LayerNorm | RMSNorm)
    spec.gamma = _array(norm.weight)
    if isinstance(norm, LayerNorm):
        spec.beta = _array(norm.bias)


def _position_encodings(side: Stacked) -> np.ndarray:
    """The learned table, or the sinusoids of the first CTRANSLATE2_POSITIONS positions."""
    if isinstance(side.position, Learned):
        return _array(side.position.table.weight)
    return sinusoid(torch.arange(CTRANSLATE2_POSITIONS), embedding_table(side).shape[1]).numpy()


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()
