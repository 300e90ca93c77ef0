"""Import a Marian model that transformers saved, as a run. The logits are the same; the token ids are renumbered to
Saccade's order.

The decoder of such a model usually starts from the padding symbol. Saccade has a start symbol of its own: its embedding
is a copy of the row that the model starts from, and its output bias is so low that it is never generated.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from saccade.config import python_layer, resolve
from saccade.data.codecs import Codecs
from saccade.data.tokenizers import SPECIAL, START, UNKNOWN, PieceListTokenizer
from saccade.errors import RunError, remedy
from saccade.formats.marian import HF_WEIGHTS_FILE, layer_names
from saccade.models.assemble import assemble
from saccade.parts.positions import sinusoid
from saccade.recipe import Recipe
from saccade.runs.files import read_json
from saccade.runs.folder import RunFolder
from saccade.runs.weights import write_checkpoint

Size = Annotated[int, Field(ge=1, le=1_000_000)]
SmallCount = Annotated[int, Field(ge=1, le=1000)]
Id = Annotated[int, Field(ge=0, le=1_000_000)]
FORBIDDEN_LOGIT = -1e9  # its probability is 0; −∞ would make the mean of all logits useless
SAVE_AGAIN = "download the model again, or save it again with `save_pretrained` of transformers"


class MarianConfig(BaseModel):
    """The entries of config.json that matter for the import."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    model_type: Literal["marian"]
    d_model: Size
    encoder_layers: SmallCount
    decoder_layers: SmallCount
    encoder_attention_heads: SmallCount
    decoder_attention_heads: SmallCount
    encoder_ffn_dim: Size
    decoder_ffn_dim: Size
    activation_function: Literal["relu", "gelu", "swish", "silu"] = "gelu"
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    max_position_embeddings: Size = 1024
    pad_token_id: Id
    eos_token_id: Id
    decoder_start_token_id: Id
    # options of older versions, which transformers no longer reads
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False


class GenerationConfig(BaseModel):
    """The search settings of generation_config.json."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    num_beams: SmallCount = 1
    length_penalty: Annotated[float, Field(ge=0)] = 1.0


_HfConfig = TypeVar("_HfConfig", bound=BaseModel)


@dataclass(frozen=True)
class VocabularyMapping:
    """For each token id of Saccade the row of the imported embedding table, and the pieces of the ids after the special
    ones. `start_is_copied`: the start symbol shares its row with another symbol."""

    rows: tuple[int, ...]
    pieces: tuple[str, ...]
    start_is_copied: bool


def import_marian(folder: Path, run: Path) -> None:
    """Import the Marian model in `folder` as the run folder `run`. The run is written to a temporary folder and renamed
    at the end, so `run` is complete or does not exist."""
    config = _validated(folder / "config.json", MarianConfig)
    weights = _read_weights(folder)
    source, target = _vocabularies(folder, config, weights)
    codecs = _codecs(folder, source, target)
    recipe = _recipe(folder, config, codecs)
    model = assemble(recipe.model, codecs.source.input, codecs.target.size)
    _check_all_weights_are_known(recipe, weights, folder / HF_WEIGHTS_FILE)
    _copy_weights(_converted(recipe, config, weights, source, target), model.state_dict(), folder / HF_WEIGHTS_FILE)
    temporary = RunFolder(run.with_name(f".{run.name}.tmp"))
    shutil.rmtree(temporary.path, ignore_errors=True)
    temporary.path.mkdir(parents=True)
    temporary.store(recipe, {}, codecs)
    write_checkpoint(temporary.checkpoints.at(0), model, {}, None, step=0, imported="marian")
    for mark in ("latest", "best"):
        temporary.checkpoints.mark(mark, 0)
    os.rename(temporary.path, run)


def _validated(path: Path, kind: type[_HfConfig]) -> _HfConfig:
    values = _read_json(path)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        where = f"{path}: {key}" if key else str(path)
        if not key:
            raise RunError(f"{where}: must be a JSON object; {SAVE_AGAIN}") from None
        if first["type"] == "missing":
            raise RunError(f"{where}: is missing; {SAVE_AGAIN}") from None
        raise RunError(
            f"{where}: {first['msg'].replace('Input should be', 'must be')}, got {first['input']!r}; only models of "
            "transformers' Marian type with such settings can be imported"
        ) from None


def _read_json(path: Path) -> Any:
    with remedy(SAVE_AGAIN):
        return read_json(path)


def _read_weights(folder: Path) -> dict[str, Tensor]:
    path = folder / HF_WEIGHTS_FILE
    if not path.is_file():
        if (folder / "pytorch_model.bin").exists():
            raise RunError(
                f"{path}: is missing; pytorch_model.bin is a pickle, which may run code; save the model as safetensors "
                "with transformers"
            )
        raise RunError(f"{path}: is missing; {SAVE_AGAIN}")
    try:
        return {name: tensor.float() for name, tensor in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: is damaged: {error}; {SAVE_AGAIN}") from None


# ── vocabularies ──


def _vocabularies(
    folder: Path, config: MarianConfig, weights: dict[str, Tensor]
) -> tuple[VocabularyMapping, VocabularyMapping]:
    tables = _tables(config, weights, folder)
    source = _vocabulary(folder / "vocab.json", config, len(tables["encoder"]))
    name = "target_vocab.json" if (folder / "target_vocab.json").is_file() else "vocab.json"
    return source, _vocabulary(folder / name, config, len(tables["decoder"]))


def _vocabulary(path: Path, config: MarianConfig, rows: int) -> VocabularyMapping:
    """Map Saccade's token ids to the rows of an embedding table, from a vocab.json. Rows without a piece are kept,
    because they are part of every softmax; they get a name that occurs in no text."""
    ids = _read_json(path)
    if not isinstance(ids, dict) or not all(type(i) is int and 0 <= i < rows for i in ids.values()):
        raise RunError(
            f"{path}: expected pieces with ids below {rows:,}, the number of rows of the embedding table; {SAVE_AGAIN}"
        )
    pieces = {i: piece for piece, i in ids.items()}
    if len(pieces) < len(ids):
        raise RunError(f"{path}: two pieces have the same id; {SAVE_AGAIN}")
    if SPECIAL[UNKNOWN] not in ids:
        raise RunError(f"{path}: has no id for {SPECIAL[UNKNOWN]}; {SAVE_AGAIN}")
    pad, unknown, start, end = (
        config.pad_token_id,
        ids[SPECIAL[UNKNOWN]],
        config.decoder_start_token_id,
        config.eos_token_id,
    )
    special = (pad, unknown, start, end)
    if max(special) >= rows:
        raise RunError(
            f"{path.parent / 'config.json'}: has the token id {max(special)}, but the embedding table has only "
            f"{rows:,} rows; {SAVE_AGAIN}"
        )
    start_is_copied = pieces.get(start) != SPECIAL[START]
    taken = {pad, unknown, end} if start_is_copied else {*special}
    others = [i for i in range(rows) if i not in taken]
    return VocabularyMapping((*special, *others), tuple(_piece(pieces, i) for i in others), start_is_copied)


def _piece(pieces: dict[int, str], row: int) -> str:
    piece = pieces.get(row, f"<row {row}>")
    return f"{piece} {row}" if piece in SPECIAL else piece


def _codecs(folder: Path, source: VocabularyMapping, target: VocabularyMapping) -> Codecs[Any, Any]:
    source_proto, target_proto = (_read_bytes(folder / name) for name in ("source.spm", "target.spm"))
    try:
        tokenizer = PieceListTokenizer(source_proto, source.pieces)
        if source_proto == target_proto and source == target:
            return Codecs(tokenizer, tokenizer)
        return Codecs(tokenizer, PieceListTokenizer(target_proto, target.pieces))
    except RuntimeError as error:
        raise RunError(
            f"{folder / 'source.spm'} or target.spm: is not a sentencepiece model: {error}; {SAVE_AGAIN}"
        ) from None


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        advice = SAVE_AGAIN if isinstance(error, FileNotFoundError) else "check the file's permissions"
        raise RunError(f"{path}: cannot be read: {error.strerror}; {advice}") from None


# ── the recipe ──


def _recipe(folder: Path, config: MarianConfig, codecs: Codecs[Any, Any]) -> Recipe:
    generation = folder / "generation_config.json"
    search = _validated(generation if generation.is_file() else folder / "config.json", GenerationConfig)
    beam = {"kind": "beam", "size": search.num_beams, "length_penalty": search.length_penalty}
    tied, silu = config.tie_word_embeddings, config.activation_function == "silu"
    tree = {
        "data": {
            "tokenizer": "piece_list",
            "joint": codecs.source is codecs.target,
            "longest": max(1, config.max_position_embeddings - 1),
        },
        "model": {
            "dim": config.d_model,
            "encoder": _side(config, "encoder", "swish" if silu else config.activation_function),
            "decoder": _side(config, "decoder", "swish" if silu else config.activation_function),
            "head": {"kind": "tied" if tied else "linear", "bias": True},
            "shared_embeddings": tied and config.share_encoder_decoder_embeddings,
        },
        "decode": {"search": beam if search.num_beams > 1 else "greedy"},
    }
    return resolve(Recipe, [python_layer(tree, "config.json")]).config


def _side(config: MarianConfig, side: str, activation: str) -> dict[str, Any]:
    heads = {"heads": getattr(config, f"{side}_attention_heads")}
    return {
        "depth": getattr(config, f"{side}_layers"),
        "embedding": {"kind": "tokens", "scaled": config.scale_embedding},
        "block": {
            "self": heads,
            **({"cross": heads} if side == "decoder" else {}),
            "connection": "post",
            "feed_forward": {"inner": getattr(config, f"{side}_ffn_dim"), "activation": activation},
        },
    }


# ── weights ──

TABLE_NAMES = ("model.shared.weight", "lm_head.weight", "final_logits_bias")
SIDE_TABLES = ("embed_tokens.weight", "embed_positions.weight")


def _check_all_weights_are_known(recipe: Recipe, weights: dict[str, Tensor], path: Path) -> None:
    """Refuse weights of parts that a Marian model does not have, and position encodings that are not sinusoids. (An
    unknown key of config.json that changes no weight is ignored, as transformers ignores it.)"""
    known = {hf_name for _, hf_name in layer_names(recipe)} | {*TABLE_NAMES}
    known |= {f"model.{side}.{name}" for side in ("encoder", "decoder") for name in SIDE_TABLES}
    if unknown := sorted(weights.keys() - known):
        raise RunError(
            f"{path}: has the weight {unknown[0]}, which a model of transformers' Marian type does not have; only "
            "models of this type can be imported"
        )
    for name, table in weights.items():
        if name.endswith("embed_positions.weight"):
            expected = sinusoid(torch.arange(len(table)), table.shape[-1])
            if expected.shape != table.shape or not torch.allclose(table, expected, atol=1e-2):
                raise RunError(
                    f"{path}: {name} does not hold sinusoids; only models with sinusoidal positions can be imported"
                )


def _tables(config: MarianConfig, weights: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The embedding tables of encoder and decoder and the weight of the head. Their names depend on the version of
    transformers and on which of them are tied."""
    names = {side: [f"model.{side}.embed_tokens.weight"] for side in ("encoder", "decoder")}
    if config.tie_word_embeddings and config.share_encoder_decoder_embeddings:
        names = {side: ["model.shared.weight", "lm_head.weight", *own] for side, own in names.items()}
    names["head"] = names["decoder"] if config.tie_word_embeddings else ["lm_head.weight"]
    tables = {}
    for part, candidates in names.items():
        table = next((weights[name] for name in candidates if name in weights), None)
        if table is None or table.ndim != 2 or table.shape[1] != config.d_model:
            raise RunError(
                f"{folder / HF_WEIGHTS_FILE}: {candidates[0]} is missing, or is not a table of width {config.d_model}; "
                f"{SAVE_AGAIN}"
            )
        tables[part] = table
    return tables


def _converted(
    recipe: Recipe,
    config: MarianConfig,
    weights: dict[str, Tensor],
    source: VocabularyMapping,
    target: VocabularyMapping,
) -> dict[str, Tensor]:
    """The weights under Saccade's names, with the rows of the tables in the order of Saccade's token ids."""
    tables = _tables(config, weights, Path())  # the path is only for errors, and `_vocabularies` found all tables
    rows = {"encoder": list(source.rows), "decoder": list(target.rows)}
    converted = {name: weights[hf_name] for name, hf_name in layer_names(recipe) if hf_name in weights}
    converted |= {f"{side}.embedding.table.weight": tables[side][order] for side, order in rows.items()}
    bias = weights.get("final_logits_bias", torch.zeros(1, len(tables["head"]))).flatten()[rows["decoder"]].clone()
    if target.start_is_copied:
        bias[START] = FORBIDDEN_LOGIT
    if config.tie_word_embeddings:
        return converted | {"head.bias": bias}
    return converted | {"head.out.weight": tables["head"][rows["decoder"]], "head.out.bias": bias}


def _copy_weights(source: dict[str, Tensor], target: dict[str, Tensor], path: Path) -> None:
    for name, tensor in target.items():
        imported = source.get(name)
        if imported is None or imported.shape != tensor.shape:
            actual = "is missing" if imported is None else f"has the shape {list(imported.shape)}"
            raise RunError(
                f"{path}: the weight for {name} {actual}; config.json requires {list(tensor.shape)}; {SAVE_AGAIN}"
            )
        tensor.copy_(imported)
