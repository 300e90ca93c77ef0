"""The checkpoint format: weights and optimizer tensors in safetensors, the training state in JSON, and a manifest with
checksums. Pickle is never used."""

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import saccade
from saccade.errors import RunError, remedy
from saccade.runs.checkpoints import FORMAT, WEIGHTS, Checkpoints
from saccade.runs.files import MANIFEST, FileWriter, read_json, to_json, write_folder

TRAINING, STATE = "training.safetensors", "state.json"
METADATA_BYTES = 1 << 20  # an upper bound for the JSON files and the headers


def named_tensors(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor of the model once, by its first name; and for shared tensors, each other name → the first name."""
    first_names: dict[int, str] = {}
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in first_names:
            aliases[name] = first_names[id(tensor)]
        else:
            first_names[id(tensor)] = name
            tensors[name] = tensor
    return tensors, aliases


def checkpoint_bytes(model: nn.Module, training: Mapping[str, Tensor]) -> int:
    """About how many bytes a checkpoint takes on the disk."""
    tensors = (*named_tensors(model)[0].values(), *training.values())
    return METADATA_BYTES + sum(t.numel() * t.element_size() for t in tensors)


def write_checkpoint(
    folder: Path, model: nn.Module, training: Mapping[str, Tensor], state: Mapping[str, Any] | None, **facts: Any
) -> None:
    """Write a checkpoint folder atomically. `training` (optimizer tensors and random states) and `state` are needed to
    resume; the average of several checkpoints has neither. `facts` are added to the manifest."""
    tensors, aliases = named_tensors(model)
    writers: dict[str, FileWriter] = {WEIGHTS: lambda path: _save(tensors, path)}
    if state is not None:
        writers |= {TRAINING: lambda path: _save(training, path), STATE: lambda path: _dump(state, path)}
    needed = checkpoint_bytes(model, training)
    versions = {"format": FORMAT, "saccade": saccade.__version__, "torch": torch.__version__, "aliases": aliases}
    write_folder(folder, writers, {**versions, **facts}, needed)


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        reason = str(error)  # the only place where safetensors gives the error number
        is_full = "No space left" in reason or f"os error {errno.ENOSPC}" in reason
        code = errno.ENOSPC if is_full else None
        raise OSError(code, reason) from None


def _dump(state: Mapping[str, Any], path: Path) -> None:
    path.write_bytes(to_json(state))


def load_weights(model: nn.Module, folder: Path) -> dict[str, Any]:
    """Verify a checkpoint, copy its weights into the model and return its manifest. A shared tensor may be stored under
    any of its names."""
    tensors, manifest = read_weights(folder)
    with remedy(Checkpoints(folder.parent).advice_if_damaged(folder)):
        _copy(tensors, model, folder / WEIGHTS)
    return manifest


def read_weights(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Verify a checkpoint, and return its tensors and its manifest."""
    checkpoints = Checkpoints(folder.parent)
    manifest = checkpoints.verify(folder)
    if manifest.get("format") != FORMAT:
        raise RunError(
            f"{folder}: has format {manifest.get('format')}, but this version of Saccade reads format {FORMAT}; "
            "use the version that wrote it, or train again"
        )
    with remedy(checkpoints.advice_if_damaged(folder)):
        return _load(folder, WEIGHTS, manifest), manifest


def _copy(stored: dict[str, Tensor], model: nn.Module, path: Path) -> None:
    """Copy tensors, read from `path`, into the model. Names and shapes must be those of the model."""
    tensors, aliases = named_tensors(model)
    for name, tensor in tensors.items():
        names = [name, *(alias for alias, first in aliases.items() if first == name)]
        value = next((stored.pop(n) for n in names if n in stored), None)
        if value is None:
            raise RunError(f"{path}: {name} is missing")
        if value.shape != tensor.shape:
            raise RunError(f"{path}: {name} has shape {list(value.shape)}, but the model needs {list(tensor.shape)}")
        with torch.no_grad():
            tensor.copy_(value)
    if stored:
        raise RunError(f"{path}: contains {', '.join(sorted(stored)[:3])}, which the model does not have")


def load_training(folder: Path, manifest: Mapping[str, Any]) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the state that resuming needs besides the weights. The checkpoint must have been verified."""
    return _load(folder, TRAINING, manifest), read_json(_listed(folder, STATE, manifest))


def _listed(folder: Path, name: str, manifest: Mapping[str, Any]) -> Path:
    """The path of a file, whose checksum must be in the manifest."""
    if name not in manifest["files"]:
        raise RunError(f"{folder / MANIFEST}: is damaged: it does not list {name}")
    return folder / name


def _load(folder: Path, name: str, manifest: Mapping[str, Any]) -> dict[str, Tensor]:
    path = _listed(folder, name, manifest)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: is damaged: {error}") from None


def average(model: nn.Module, folders: Sequence[Path]) -> None:
    """Load the mean of the weights of several checkpoints into the model, accumulated in double precision. Tensors that
    are not floating-point come from the last checkpoint."""
    sums: dict[str, Tensor] = {}
    for folder in folders:
        load_weights(model, folder)
        for name, tensor in named_tensors(model)[0].items():
            if tensor.is_floating_point():
                sums[name] = sums.get(name, 0) + tensor.detach().cpu().double()
    with torch.no_grad():
        for name, tensor in named_tensors(model)[0].items():
            if name in sums:
                tensor.copy_(sums[name] / len(folders))
