"""CTranslate2: a folder of a Transformer that its library runs, without torch. Pre-norm and post-norm, any heads."""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.data.tokenizers import END, SPECIAL, START, UNKNOWN
from saccade.formats.ctranslate2_engine import CTranslate2Engine, FallbackEngine
from saccade.formats.exported import ExportableRun, read_exported, write_exported
from saccade.formats.transformer_spec import head_parts, side_of, why_not_transformer

if TYPE_CHECKING:
    from torch import nn

    from saccade.recipe import Recipe

CTRANSLATE2_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}
CTRANSLATE2_POSITIONS = 2048  # sinusoids are written as a table; longer lines are left to torch


def why_not(recipe: "Recipe") -> str | None:
    """What stands in the way of exporting this model, with its key; nothing if it can be."""
    return why_not_transformer(
        recipe, "CTranslate2", positions=("sinusoidal", "learned"), scores=("dot", "scaled_dot")
    ) or (
        None
        if len({side_of(recipe, name).eps for name in ("encoder", "decoder")}) == 1
        else "model.decoder.block.norm.eps: CTranslate2 has one eps for the whole model; make it that of the encoder"
    )


def write(run: ExportableRun, folder: Path, quantization: str = "float32") -> None:
    """A CTranslate2 model, the tokenizers and the decode settings."""
    spec = _spec(run)
    spec.validate()
    spec.optimize(quantization=quantization)
    with tempfile.TemporaryDirectory() as scratch:
        spec.save(scratch)
        model = {
            path.name: lambda target, path=path: shutil.copyfile(path, target)
            for path in sorted(Path(scratch).iterdir())
        }
        places = [len(_encodings(side)) for side in (run.model.encoder, run.model.decoder)]
        write_exported(run, folder, f"ctranslate2-{quantization}", model, (places[0], places[1]))


def open(folder: Path, beyond: FallbackEngine | None = None) -> CTranslate2Engine:  # noqa: A001 - one verb for all formats
    """The engine that runs such a folder; `beyond` gives one for lines that are too long for it."""
    return CTranslate2Engine(folder, read_exported(folder), beyond)


# ── the model, in the words of CTranslate2 ──


def _spec(run: ExportableRun) -> Any:
    from ctranslate2 import specs
    from ctranslate2.specs import transformer_spec

    recipe, model = run.recipe, run.model
    encoder, decoder = side_of(recipe, "encoder"), side_of(recipe, "decoder")
    spec: Any = specs.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(encoder.depth, encoder.heads, **_style(encoder)),
        transformer_spec.TransformerDecoderSpec(decoder.depth, decoder.heads, **_style(decoder)),
    )
    _fill_side(spec.encoder, spec.encoder.embeddings[0], model.encoder, encoder)
    _fill_side(spec.decoder, spec.decoder.embeddings, model.decoder, decoder)
    weight, bias = head_parts(model)
    spec.decoder.projection.weight = weight
    if bias is not None:
        spec.decoder.projection.bias = bias
    spec.register_source_vocabulary(run.codecs.source.vocabulary())
    spec.register_target_vocabulary(run.codecs.target.vocabulary())
    spec.config.unk_token, spec.config.eos_token = SPECIAL[UNKNOWN], SPECIAL[END]
    spec.config.bos_token = spec.config.decoder_start_token = SPECIAL[START]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = encoder.eps
    return spec


def _style(side: Any) -> dict[str, Any]:
    from ctranslate2.specs import common_spec

    activation = getattr(common_spec.Activation, CTRANSLATE2_ACTIVATIONS[side.activation])
    return {"pre_norm": side.connection == "pre", "activation": activation}


def _fill_side(spec: Any, embeddings: Any, ours: Any, side: Any) -> None:
    embeddings.weight = _array(ours.embedding.table.weight)
    spec.scale_embeddings = side.scaled
    spec.position_encodings.encodings = _encodings(ours)
    if side.connection == "pre":
        _fill_norm(spec.layer_norm, ours.final_norm)
    for layer, block in zip(spec.layer, ours.layers, strict=True):
        _fill_attention(layer.self_attention, block, "self", side.score)
        if block.mixers == ("self", "cross"):
            _fill_attention(layer.attention, block, "cross", side.score)
        _fill_linear(layer.ffn.linear_0, block.feed_forward.up)
        _fill_linear(layer.ffn.linear_1, block.feed_forward.down)
        _fill_norm(layer.ffn.layer_norm, block.residual_feed_forward.norm)


def _fill_attention(spec: Any, block: "nn.Module", name: str, score: str) -> None:
    """CTranslate2 multiplies query, key and value at once where they read the same."""
    part = block.get_submodule(name)
    roles = [part.get_submodule(role) for role in ("query", "key", "value")]
    if name == "self":
        _fill_linear(spec.linear[0], *roles)
    else:
        _fill_linear(spec.linear[0], roles[0])
        _fill_linear(spec.linear[1], *roles[1:])
    _fill_linear(spec.linear[-1], part.get_submodule("out"))
    _fill_norm(spec.layer_norm, block.get_submodule(f"residual_{name}.norm"))
    if score == "dot":
        spec.queries_scale = 1.0


def _fill_linear(spec: Any, *ours: Any) -> None:
    spec.weight = np.concatenate([_array(each.weight) for each in ours])
    spec.bias = np.concatenate([_array(each.bias) for each in ours])


def _fill_norm(spec: Any, ours: Any) -> None:
    spec.gamma, spec.beta = _array(ours.weight), _array(ours.bias)


def _encodings(ours: Any) -> np.ndarray:
    """A vector for each place: learned, or as many sinusoids as one line may need."""
    import torch

    from saccade.parts.positions import Learned, sinusoid

    if isinstance(ours.position, Learned):
        return _array(ours.position.table.weight)
    return sinusoid(torch.arange(CTRANSLATE2_POSITIONS), ours.embedding.table.weight.shape[1]).numpy()


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()
