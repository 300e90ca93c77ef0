"""A folder of a Marian model for transformers, as a run: the same logits, ids in our order.

Such a model begins to write from its padding symbol. Ours begins from one of its own: a copy of that row, which the
bias of the head keeps from ever being written.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from saccade.config import python_layer, resolve
from saccade.data.codecs import Codecs
from saccade.data.tokenizers import SPECIAL, PieceList
from saccade.errors import RunError
from saccade.formats.marian import HF_WEIGHTS_FILE, layer_names
from saccade.models.assemble import assemble
from saccade.recipe import Recipe
from saccade.runs.files import read_json
from saccade.runs.folder import RunFolder
from saccade.runs.weights import write_checkpoint

Size = Annotated[int, Field(ge=1, le=1_000_000)]
SmallCount = Annotated[int, Field(ge=1, le=1000)]
Id = Annotated[int, Field(ge=0, le=1_000_000)]
FORBIDDEN_LOGIT = -1e9  # a logit that no softmax sees; −∞ would make the mean of all logits useless


class MarianConfig(BaseModel):
    """What config.json says of the model, as far as it matters here."""

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
    # what only older versions knew, and none reads any more
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False


class GenerationConfig(BaseModel):
    """What generation_config.json says of the search."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    num_beams: SmallCount = 1
    length_penalty: Annotated[float, Field(ge=0)] = 1.0


@dataclass(frozen=True)
class VocabularyMapping:
    """For each of our ids the row that was theirs, and the names from the fifth on."""

    rows: tuple[int, ...]
    names: tuple[str, ...]
    start_is_copied: bool


def read(folder: Path, run: Path) -> None:
    """Make the run, or nothing at all."""
    described = _described(folder / "config.json", MarianConfig)
    weights = _weights(folder)
    source, target = _vocabularies(folder, described, weights)
    codecs = _codecs(folder, source, target)
    recipe = _recipe(folder, described, codecs)
    model = assemble(recipe.model, codecs.source.size, codecs.target.size)
    _fill(model.state_dict(), _renamed(recipe, described, weights, source, target), folder / HF_WEIGHTS_FILE)
    temporary = run.with_name(f".{run.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    made = RunFolder(temporary)
    made.path.mkdir(parents=True)
    made.store(recipe, {}, codecs)
    write_checkpoint(made.checkpoints.at(0), model, {}, None, step=0, imported="marian")
    for mark in ("latest", "best"):
        made.checkpoints.mark(mark, 0)
    os.rename(temporary, run)


def _described(path: Path, kind: Any) -> Any:
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "it"
        raise RunError(f"{path}: {key}: {first['msg'].replace('Input should be', 'expected')}") from None


def _weights(folder: Path) -> dict[str, Tensor]:
    path = folder / HF_WEIGHTS_FILE
    if not path.is_file():
        pickled = (folder / "pytorch_model.bin").exists()
        why = "; pytorch_model.bin is a pickle, which may run code: save it anew with transformers" if pickled else ""
        raise RunError(f"{path}: is missing{why}")
    try:
        return {name: tensor.float() for name, tensor in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: is damaged: {error}") from None


# ── vocabularies ──


def _vocabularies(
    folder: Path, described: MarianConfig, weights: dict[str, Tensor]
) -> tuple[VocabularyMapping, VocabularyMapping]:
    tables = _tables(described, weights, folder)
    source = _vocabulary(folder / "vocab.json", described, len(tables["encoder"]))
    apart = (folder / "target_vocab.json").is_file()
    name = "target_vocab.json" if apart else "vocab.json"
    return source, _vocabulary(folder / name, described, len(tables["decoder"]))


def _vocabulary(path: Path, described: MarianConfig, rows: int) -> VocabularyMapping:
    """Rows that no piece has keep a name that no text has: they are part of every softmax."""
    found = read_json(path)
    if not isinstance(found, dict) or not all(type(i) is int and 0 <= i < rows for i in found.values()):
        raise RunError(f"{path}: is not a list of pieces with numbers below {rows:,}, the rows of the embedding")
    names = {i: name for name, i in found.items()}
    if len(names) < len(found) or SPECIAL[1] not in found:
        raise RunError(f"{path}: gives a number twice, or none to {SPECIAL[1]}")
    start = described.decoder_start_token_id
    first = (described.pad_token_id, found[SPECIAL[1]], start, described.eos_token_id)
    if max(first) >= rows:
        raise RunError(f"{path.parent / 'config.json'}: names the id {max(first)}, but there are only {rows:,} rows")
    copied = names.get(start) != SPECIAL[2]
    taken = {*first} if not copied else {first[0], first[1], first[3]}
    rest = [i for i in range(rows) if i not in taken]
    return VocabularyMapping((*first, *rest), tuple(_name(names, i) for i in rest), copied)


def _name(names: dict[int, str], row: int) -> str:
    name = names.get(row, f"<row {row}>")
    return f"{name} {row}" if name in SPECIAL else name


def _codecs(folder: Path, source: VocabularyMapping, target: VocabularyMapping) -> Codecs[Any, Any]:
    protos = [_bytes(folder / name) for name in ("source.spm", "target.spm")]
    try:
        read = PieceList(protos[0], source.names)
        alike = protos[0] == protos[1] and source == target
        return Codecs(read, read if alike else PieceList(protos[1], target.names))
    except RuntimeError as error:
        raise RunError(f"{folder / 'source.spm'} or target.spm: is not a sentencepiece model: {error}") from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None


# ── the recipe ──


def _recipe(folder: Path, described: MarianConfig, codecs: Codecs[Any, Any]) -> Recipe:
    generation = folder / "generation_config.json"
    searched = _described(generation if generation.is_file() else folder / "config.json", GenerationConfig)
    beam = {"kind": "beam", "size": searched.num_beams, "length_penalty": searched.length_penalty}
    tied, silu = described.tie_word_embeddings, described.activation_function == "silu"
    tree = {
        "data": {
            "tokenizer": "piece_list",
            "joint": codecs.source is codecs.target,
            "longest": max(1, described.max_position_embeddings - 1),
        },
        "model": {
            "dim": described.d_model,
            "encoder": _side(described, "encoder", "swish" if silu else described.activation_function),
            "decoder": _side(described, "decoder", "swish" if silu else described.activation_function),
            "head": {"kind": "tied" if tied else "linear", "bias": True},
            "shared_embeddings": tied and described.share_encoder_decoder_embeddings,
        },
        "decode": {"search": beam if searched.num_beams > 1 else "greedy"},
    }
    return resolve(Recipe, [python_layer(tree, "config.json")]).config


def _side(described: MarianConfig, side: str, activation: str) -> dict[str, Any]:
    heads = {"heads": getattr(described, f"{side}_attention_heads")}
    return {
        "depth": getattr(described, f"{side}_layers"),
        "embedding": {"kind": "tokens", "scaled": described.scale_embedding},
        "block": {
            "self": heads,
            "cross": heads,
            "connection": "post",
            "feed_forward": {"inner": getattr(described, f"{side}_ffn_dim"), "activation": activation},
        },
    }


# ── weights ──


def _tables(described: MarianConfig, weights: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The embeddings of both sides and the table of the head, wherever a version of transformers has put them."""
    own = {side: [f"model.{side}.embed_tokens.weight"] for side in ("encoder", "decoder")}
    if described.tie_word_embeddings and described.share_encoder_decoder_embeddings:
        own = {side: ["model.shared.weight", "lm_head.weight", *names] for side, names in own.items()}
    places = own | {"head": own["decoder"] if described.tie_word_embeddings else ["lm_head.weight"]}
    found = {part: next((weights[name] for name in names if name in weights), None) for part, names in places.items()}
    for part, table in found.items():
        if table is None or table.ndim != 2 or table.shape[1] != described.d_model:
            raise RunError(f"{folder / HF_WEIGHTS_FILE}: {places[part][0]} is missing or not {described.d_model} wide")
    return {part: table for part, table in found.items() if table is not None}


def _renamed(
    recipe: Recipe,
    described: MarianConfig,
    weights: dict[str, Tensor],
    source: VocabularyMapping,
    target: VocabularyMapping,
) -> dict[str, Tensor]:
    tables = _tables(described, weights, Path())
    rows = {"encoder": list(source.rows), "decoder": list(target.rows)}
    made = {ours: weights[theirs] for ours, theirs in layer_names(recipe) if theirs in weights}
    made |= {f"{side}.embedding.table.weight": tables[side][at] for side, at in rows.items()}
    bias = weights.get("final_logits_bias", torch.zeros(1, len(tables["head"]))).flatten()[rows["decoder"]].clone()
    if target.start_is_copied:
        bias[SPECIAL.index("<s>")] = FORBIDDEN_LOGIT
    if described.tie_word_embeddings:
        return made | {"head.bias": bias}
    return made | {"head.out.weight": tables["head"][rows["decoder"]], "head.out.bias": bias}


def _fill(ours: dict[str, Tensor], theirs: dict[str, Tensor], path: Path) -> None:
    for name, tensor in ours.items():
        found = theirs.get(name)
        if found is None or found.shape != tensor.shape:
            shape = "none" if found is None else list(found.shape)
            raise RunError(f"{path}: for {name} {list(tensor.shape)} is needed, the file has {shape}")
        tensor.copy_(found)
