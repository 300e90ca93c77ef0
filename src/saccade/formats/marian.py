"""Marian in transformers: a folder that MarianMTModel and MarianTokenizer load. It is post-norm; a pre-norm model goes
out as Pegasus, which has the same parts under the same names, and a norm after the last layer.

Both have our sums in our order, so nothing is converted: weights change their names.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import saccade
from saccade.data.tokenizers import END, PAD, SPECIAL, START, PieceList
from saccade.formats.card import card
from saccade.formats.exported import ExportableRun, built_from
from saccade.formats.transformer_spec import TransformerSide, side_of, why_not_transformer
from saccade.runs.checkpoints import FORMAT
from saccade.runs.files import FileWriter, to_json, write_folder

if TYPE_CHECKING:
    from torch import Tensor

    from saccade.recipe import Recipe

HF_WEIGHTS_FILE = "model.safetensors"
HF_POSITIONS = 1024  # sinusoids that transformers makes; a longer text is refused there
HF_NORM_EPS = 1e-5  # of every norm there
MARIAN_TYPE = {"architectures": ["MarianMTModel"], "model_type": "marian"}
PEGASUS_TYPE = {"architectures": ["PegasusForConditionalGeneration"], "model_type": "pegasus"}
ATTENTION_NAMES = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
LAYER_NAMES = {  # ours → theirs
    **{f"self.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION_NAMES.items()},
    "residual_self.norm": "self_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "residual_feed_forward.norm": "final_layer_norm",
}
CROSS_NAMES = {
    **{f"cross.{ours}": f"encoder_attn.{theirs}" for ours, theirs in ATTENTION_NAMES.items()},
    "residual_cross.norm": "encoder_attn_layer_norm",
}


def layer_names(recipe: "Recipe") -> Iterator[tuple[str, str]]:
    """Every weight of the layers and of the norm that closes them: our name, theirs."""
    for ours, theirs in _part_names(recipe):
        for kind in ("weight", "bias"):
            yield f"{ours}.{kind}", f"model.{theirs}.{kind}"


def _part_names(recipe: "Recipe") -> Iterator[tuple[str, str]]:
    for side, parts in (("encoder", LAYER_NAMES), ("decoder", LAYER_NAMES | CROSS_NAMES)):
        for number in range(side_of(recipe, side).depth):
            for ours, theirs in parts.items():
                yield f"{side}.layers.{number}.{ours}", f"{side}.layers.{number}.{theirs}"
        if _is_pre(recipe):
            yield f"{side}.final_norm", f"{side}.layer_norm"


def _is_pre(recipe: "Recipe") -> bool:
    return side_of(recipe, "encoder").connection == "pre"


def why_not(recipe: "Recipe") -> str | None:
    """What stands in the way of exporting this model, with its key; nothing if it can be."""
    found = why_not_transformer(recipe, "Marian in transformers", positions=("sinusoidal",), scores=("scaled_dot",))
    if found:
        return found
    encoder, decoder = side_of(recipe, "encoder"), side_of(recipe, "decoder")
    for name, side in (("encoder", encoder), ("decoder", decoder)):
        if side.eps != HF_NORM_EPS:
            return f"model.{name}.block.norm.eps: Marian in transformers has {HF_NORM_EPS}; train with that"
    if encoder.activation != decoder.activation:
        return "model.decoder.block.feed_forward.activation: Marian has one for both sides; make it the encoder's"
    if encoder.scaled != decoder.scaled:
        return "model.decoder.embedding.scaled: Marian has one for both sides; make it the encoder's"
    if encoder.connection != decoder.connection:
        return "model.decoder.block.connection: transformers has one for both sides; make it the encoder's"
    if encoder.connection == "pre" and not _is_one_table(recipe):
        return (
            "model.shared_embeddings: Pegasus, the pre-norm Marian of transformers, has one table for both sides and "
            'head; train with model.shared_embeddings = true and model.head = "tied", or export --to ctranslate2'
        )
    kind = recipe.data.tokenizer.kind  # type: ignore[attr-defined]
    if kind not in ("sentencepiece", "piece_list"):
        return f'data.tokenizer: MarianTokenizer reads sentencepiece, not "{kind}"; export --to ctranslate2'
    return None


def write(run: ExportableRun, folder: Path) -> None:
    """The folder, with a model card and a manifest."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().float().contiguous() for name, tensor in _tensors(run).items()}
    texts = {
        "config.json": to_json(_config(run)),
        "generation_config.json": to_json(_generation(run)),
        "tokenizer_config.json": to_json(_tokenizer_config(run)),
        **_vocabularies(run),
        "README.md": card(run, folder.name).encode(),
    }
    writers: dict[str, FileWriter] = {name: lambda path, data=data: _write(path, data) for name, data in texts.items()}
    writers[HF_WEIGHTS_FILE] = lambda path: save_file(tensors, path, metadata={"format": "pt"})
    facts = {
        "format": FORMAT,
        "saccade": saccade.__version__,
        "kind": "hf",
        **built_from(run.folder.path, run.checkpoint),
    }
    write_folder(folder, writers, facts, 2 * sum(t.numel() * t.element_size() for t in tensors.values()))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _tensors(run: ExportableRun) -> "dict[str, Tensor]":
    ours, model = run.model.state_dict(), run.model
    tensors = {theirs: ours[name] for name, theirs in layer_names(run.recipe)}
    table = model.decoder.embedding.table.weight
    if _is_one_table(run.recipe):
        tensors["model.shared.weight"] = table
    else:
        tensors["model.encoder.embed_tokens.weight"] = model.encoder.embedding.table.weight
        tensors["model.decoder.embed_tokens.weight"] = table
    if _is_pre(run.recipe):
        tensors |= {f"model.{side}.embed_positions.weight": _places(table.shape[1]) for side in ("encoder", "decoder")}
    linear = run.recipe.model.head.kind == "linear"  # type: ignore[attr-defined]
    if linear:
        tensors["lm_head.weight"] = model.head.out.weight
    bias = model.head.out.bias if linear else model.head.bias
    tensors["final_logits_bias"] = (table.new_zeros(table.shape[0]) if bias is None else bias)[None]
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _places(dim: int) -> "Tensor":
    """The sinusoids, which Pegasus makes by itself, but calls untrained where a folder has none."""
    import torch

    from saccade.parts.positions import sinusoid

    return sinusoid(torch.arange(HF_POSITIONS), dim)


def _is_one_table(recipe: "Recipe") -> bool:
    """transformers ties both embeddings to the head, or nothing to anything."""
    return recipe.model.shared_embeddings and recipe.model.head.kind == "tied"  # type: ignore[attr-defined]


def _config(run: ExportableRun) -> dict[str, Any]:
    encoder, decoder = side_of(run.recipe, "encoder"), side_of(run.recipe, "decoder")
    return {
        **(PEGASUS_TYPE if _is_pre(run.recipe) else MARIAN_TYPE),
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
        "share_encoder_decoder_embeddings": _is_one_table(run.recipe),
        "tie_word_embeddings": run.recipe.model.head.kind == "tied",  # type: ignore[attr-defined]
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
    """The run's search, as `generate` does it unless told otherwise."""
    options = run.recipe.decode.search.options if run.recipe.decode.search.kind == "beam" else {}  # type: ignore[attr-defined]
    return {
        "num_beams": options.get("size", 1),
        **({"length_penalty": options["length_penalty"]} if options.get("size", 1) > 1 else {}),
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
        "separate_vocabs": _apart(run),
        "model_max_length": HF_POSITIONS,
        "unk_token": SPECIAL[1],
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[PAD],
    }


def _apart(run: ExportableRun) -> bool:
    return run.codecs.source.vocabulary() != run.codecs.target.vocabulary()


def _vocabularies(run: ExportableRun) -> dict[str, bytes]:
    source, target = run.codecs.source, run.codecs.target
    files = {"source.spm": _spm(source), "target.spm": _spm(target), "vocab.json": _numbered(source.vocabulary())}
    return files | ({"target_vocab.json": _numbered(target.vocabulary())} if _apart(run) else {})


def _spm(tokenizer: Any) -> bytes:
    return tokenizer.proto if isinstance(tokenizer, PieceList) else tokenizer.dump()


def _numbered(names: list[str]) -> bytes:
    return json.dumps({name: i for i, name in enumerate(names)}, ensure_ascii=False, indent=1).encode()
