"""Export to Hugging Face transformers, as a folder that MarianMTModel and MarianTokenizer load. Marian is post-norm. A
pre-norm model is exported as Pegasus, which has the same parts under the same names and a norm after the last layer.

Both compute exactly what Saccade computes, so the weights are only renamed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.config import kind_of, plain
from saccade.data.tokenizers import END, PAD, SPECIAL, START, UNKNOWN, PieceListTokenizer, Tokenizer
from saccade.formats.card import card
from saccade.formats.exported import ExportableRun, file_writers, manifest_facts
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
from saccade.models.assemble import shares_embeddings
from saccade.parts.positions import sinusoid
from saccade.recipe import Recipe
from saccade.runs.files import to_json, write_folder

HF_WEIGHTS_FILE = "model.safetensors"
HF_POSITIONS = 1024  # max_position_embeddings of the exported config: the default of transformers' MarianConfig
HF_NORM_EPS = 1e-5  # fixed in transformers
MARIAN_LIBRARY = "Marian in transformers"
MARIAN_KINDS = SupportedKinds(positions=("sinusoidal",), scores=("scaled_dot",))
MARIAN_TYPE = {"architectures": ["MarianMTModel"], "model_type": "marian"}
PEGASUS_TYPE = {"architectures": ["PegasusForConditionalGeneration"], "model_type": "pegasus"}
ATTENTION_NAMES = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
LAYER_NAMES = {  # name in Saccade → name in transformers
    **{f"self.{name}": f"self_attn.{hf_name}" for name, hf_name in ATTENTION_NAMES.items()},
    "residual_self.norm": "self_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "residual_feed_forward.norm": "final_layer_norm",
}
CROSS_NAMES = {
    **{f"cross.{name}": f"encoder_attn.{hf_name}" for name, hf_name in ATTENTION_NAMES.items()},
    "residual_cross.norm": "encoder_attn_layer_norm",
}


def layer_names(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """The names of all weights of the layers and of the final norm: in Saccade, in transformers."""
    for name, hf_name in _part_names(recipe):
        for kind in ("weight", "bias"):
            yield f"{name}.{kind}", f"model.{hf_name}.{kind}"


def _part_names(recipe: Recipe) -> Iterator[tuple[str, str]]:
    for side, parts in (("encoder", LAYER_NAMES), ("decoder", LAYER_NAMES | CROSS_NAMES)):
        for number in range(side_of(recipe, side).depth):
            for name, hf_name in parts.items():
                yield f"{side}.layers.{number}.{name}", f"{side}.layers.{number}.{hf_name}"
        if _is_pre_norm(recipe):
            yield f"{side}.final_norm", f"{side}.layer_norm"


def _is_pre_norm(recipe: Recipe) -> bool:
    return side_of(recipe, "encoder").connection == "pre"


def why_not(recipe: Recipe) -> str | None:
    """The config key that prevents an export, with the reason; None if the model can be exported."""
    reason = why_not_transformer(recipe, MARIAN_LIBRARY, MARIAN_KINDS)
    if reason:
        return reason
    encoder, decoder = side_of(recipe, "encoder"), side_of(recipe, "decoder")
    for name, side in (("encoder", encoder), ("decoder", decoder)):
        if side.eps != HF_NORM_EPS:
            return f"model.{name}.block.norm.eps: Marian in transformers has {HF_NORM_EPS}; train with this value"
    if encoder.activation != decoder.activation:
        return (
            "model.decoder.block.feed_forward.activation: Marian has one activation for encoder and decoder; set it to "
            "the encoder's"
        )
    if encoder.scaled != decoder.scaled:
        return "model.decoder.embedding.scaled: Marian has one value for encoder and decoder; set it to the encoder's"
    if encoder.connection != decoder.connection:
        return (
            "model.decoder.block.connection: transformers has one kind for encoder and decoder; set it to the encoder's"
        )
    if encoder.connection == "pre" and not _has_one_table(recipe):
        return (
            "model.shared_embeddings: Pegasus, to which pre-norm models are exported, has one table for encoder, "
            'decoder and head; train with model.shared_embeddings = true and model.head = "tied", or export --to '
            "ctranslate2"
        )
    kind = kind_of(recipe.data.tokenizer)
    if kind not in ("sentencepiece", "piece_list"):
        return f'data.tokenizer: MarianTokenizer needs sentencepiece, not "{kind}"; export --to ctranslate2'
    return None


def write(run: ExportableRun, folder: Path) -> None:
    """Write the folder, with a model card and a manifest of checksums."""
    from safetensors.torch import save_file

    check_modules(run.model, MARIAN_LIBRARY)
    tensors = {name: tensor.detach().float().contiguous() for name, tensor in _tensors(run).items()}
    contents = {
        "config.json": to_json(_config(run)),
        "generation_config.json": to_json(_generation(run)),
        "tokenizer_config.json": to_json(_tokenizer_config(run)),
        **_vocabularies(run),
        "README.md": card(run, folder.name).encode(),
    }
    writers = file_writers(contents)
    writers[HF_WEIGHTS_FILE] = lambda path: save_file(tensors, path, metadata={"format": "pt"})
    needed = 2 * sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    write_folder(folder, writers, manifest_facts(run, "hf"), needed)


def _tensors(run: ExportableRun) -> dict[str, Tensor]:
    weights = run.model.state_dict()
    tensors = {hf_name: weights[name] for name, hf_name in layer_names(run.recipe)}
    encoder, decoder = stacked_sides(run.model)
    table = embedding_table(decoder)
    if _has_one_table(run.recipe):
        tensors["model.shared.weight"] = table
    else:
        tensors["model.encoder.embed_tokens.weight"] = embedding_table(encoder)
        tensors["model.decoder.embed_tokens.weight"] = table
    if _is_pre_norm(run.recipe):
        # Pegasus computes them itself, but reports them as untrained if the folder has none
        encodings = sinusoid(torch.arange(HF_POSITIONS), table.shape[1])
        tensors |= {f"model.{side}.embed_positions.weight": encodings for side in ("encoder", "decoder")}
    weight, bias = output_weights(run.model)
    if kind_of(run.recipe.model.head) == "linear":
        tensors["lm_head.weight"] = weight
    tensors["final_logits_bias"] = (table.new_zeros(table.shape[0]) if bias is None else bias)[None]
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _has_one_table(recipe: Recipe) -> bool:
    """Whether both embeddings and the head share one table; transformers ties either all of them or none."""
    return shares_embeddings(recipe.model) and kind_of(recipe.model.head) == "tied"


def _config(run: ExportableRun) -> dict[str, Any]:
    encoder, decoder = side_of(run.recipe, "encoder"), side_of(run.recipe, "decoder")
    return {
        **(PEGASUS_TYPE if _is_pre_norm(run.recipe) else MARIAN_TYPE),
        "is_encoder_decoder": True,
        "d_model": run.recipe.model.dim,
        **_side("encoder", encoder),
        **_side("decoder", decoder),
        "activation_function": encoder.activation,
        "scale_embedding": encoder.scaled,
        "static_position_embeddings": True,
        "max_position_embeddings": HF_POSITIONS,
        "vocab_size": run.codecs.source.size,
        "decoder_vocab_size": run.codecs.target.size,
        "share_encoder_decoder_embeddings": _has_one_table(run.recipe),
        "tie_word_embeddings": kind_of(run.recipe.model.head) == "tied",
        "pad_token_id": PAD,
        "eos_token_id": END,
        "forced_eos_token_id": END,
        "decoder_start_token_id": START,
        "dropout": run.recipe.model.dropout.residual,
        "dtype": "float32",
    }


def _side(name: str, side: TransformerSide) -> dict[str, int]:
    return {f"{name}_layers": side.depth, f"{name}_attention_heads": side.heads, f"{name}_ffn_dim": side.inner}


def _generation(run: ExportableRun) -> dict[str, Any]:
    """The run's search settings as the defaults of `generate`."""
    search = plain(run.recipe.decode.search)
    beams = search["size"] if search["kind"] == "beam" else 1
    return {
        "num_beams": beams,
        **({"length_penalty": search["length_penalty"]} if beams > 1 else {}),
        "max_length": HF_POSITIONS,
        "bad_words_ids": [[PAD], [START]],
        "pad_token_id": PAD,
        "eos_token_id": END,
        "forced_eos_token_id": END,
        "decoder_start_token_id": START,
    }


def _tokenizer_config(run: ExportableRun) -> dict[str, Any]:
    return {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": _has_two_vocabularies(run),
        "model_max_length": HF_POSITIONS,
        "unk_token": SPECIAL[UNKNOWN],
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[PAD],
    }


def _has_two_vocabularies(run: ExportableRun) -> bool:
    return run.codecs.source.vocabulary() != run.codecs.target.vocabulary()


def _vocabularies(run: ExportableRun) -> dict[str, bytes]:
    source, target = run.codecs.source, run.codecs.target
    files = {"source.spm": _spm(source), "target.spm": _spm(target), "vocab.json": _ids_by_piece(source.vocabulary())}
    return files | ({"target_vocab.json": _ids_by_piece(target.vocabulary())} if _has_two_vocabularies(run) else {})


def _spm(tokenizer: Tokenizer) -> bytes:
    return tokenizer.proto if isinstance(tokenizer, PieceListTokenizer) else tokenizer.dump()


def _ids_by_piece(pieces: list[str]) -> bytes:
    return json.dumps({piece: i for i, piece in enumerate(pieces)}, ensure_ascii=False, indent=1).encode()
