"""The files of an exported folder other than the model: the tokenizers, the decode settings, and checksums of the run
files it was exported from. With them the CTranslate2 engine needs neither the run nor torch (the ONNX engine searches
with torch), and no engine uses an outdated export."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import saccade
from saccade.config import Config, Natural, build, plain, python_layer, resolve
from saccade.data.tokenizers import Tokenizer, TokenizerSlot
from saccade.decode.engine import DecodeConfig
from saccade.errors import ConfigError, RunError, remedy
from saccade.runs.checkpoints import FORMAT, WEIGHTS, Checkpoints
from saccade.runs.files import MANIFEST, FileWriter, read_json, sha256, to_json, verify, write_error, write_folder

if TYPE_CHECKING:
    from saccade.data.codecs import Codecs
    from saccade.models.assemble import Model
    from saccade.recipe import Recipe
    from saccade.runs.folder import RunFolder
    from saccade.tasks.task import Task

EXPORT_CONFIG_FILE = "saccade.json"
EXPORTS = "exports"  # the folder in a run that holds its exported models
EXPORT_AGAIN = "run `saccade export` again"
JOINT_TOKENIZER, SOURCE_TOKENIZER, TARGET_TOKENIZER = "joint.model", "source.model", "target.model"


class ExportableRun(Protocol):
    """A trained run as the formats need it; `saccade.load` returns one. Codecs and model are read at first access."""

    folder: "RunFolder"
    checkpoint: Path
    recipe: "Recipe"
    task: "cached_property[Task]"
    codecs: "cached_property[Codecs[Tokenizer, Tokenizer]]"
    model: "cached_property[Model]"


class ExportConfig(Config):
    """How text becomes token ids, and the search settings. `max_source_length` and `max_target_length` are the maximum
    sequence lengths of the exported model, and `longest` that of the run's decoder; 0 means no limit."""

    tokenizer: TokenizerSlot
    joint: bool
    decode: DecodeConfig
    max_source_length: Natural = 0
    max_target_length: Natural = 0
    longest: Natural = 0


@dataclass(frozen=True)
class ExportedModel:
    """The contents of an exported folder, other than the model, after its checksums were verified."""

    config: ExportConfig
    source: Tokenizer
    target: Tokenizer


def write_exported(
    run: ExportableRun, folder: Path, kind: str, model: Mapping[str, FileWriter], max_lengths: tuple[int, int]
) -> None:
    """Write the files of a model and everything else its folder needs. `max_lengths` are those of source and target."""
    decoder = run.model.decoder
    config = {
        "tokenizer": plain(run.recipe.data.tokenizer),
        "joint": run.recipe.data.joint,
        "decode": plain(run.recipe.decode),
        "max_source_length": max_lengths[0],
        "max_target_length": max_lengths[1],
        "longest": decoder.longest or 0 if decoder else 0,
    }
    contents = {EXPORT_CONFIG_FILE: to_json(config), **run.task.files(run.codecs)}
    needed = 2 * sum(tensor.numel() * tensor.element_size() for tensor in run.model.state_dict().values())
    write_folder(folder, {**model, **file_writers(contents)}, manifest_facts(run, kind), needed)


def file_writers(contents: Mapping[str, bytes]) -> dict[str, FileWriter]:
    """Writers for files of the given contents."""

    def writer(data: bytes) -> FileWriter:
        def write(path: Path) -> None:
            path.write_bytes(data)

        return write

    return {name: writer(data) for name, data in contents.items()}


def file_copiers(folder: Path) -> dict[str, FileWriter]:
    """Writers that copy the files of a folder."""

    def copier(source: Path) -> FileWriter:
        def copy(target: Path) -> None:
            shutil.copyfile(source, target)

        return copy

    return {path.name: copier(path) for path in sorted(folder.iterdir())}


def manifest_facts(run: ExportableRun, kind: str) -> dict[str, Any]:
    """What the manifest of an exported folder says besides the checksums of its files."""
    return {
        "format": FORMAT,
        "saccade": saccade.__version__,
        "kind": kind,
        "checkpoint": run.checkpoint.name,
        "exported_from": exported_from(run.folder.path, run.checkpoint),
    }


def read_exported(folder: Path) -> ExportedModel:
    """Verify and read an exported folder. Errors do not say what to do: the caller adds it."""
    manifest = verify(folder)
    if EXPORT_CONFIG_FILE not in manifest["files"] or manifest.get("format") != FORMAT:
        raise RunError(f"{folder}: was not written by this version of Saccade")
    try:
        config: ExportConfig = resolve(
            ExportConfig, [python_layer(read_json(folder / EXPORT_CONFIG_FILE), EXPORT_CONFIG_FILE)]
        ).config
    except (ConfigError, ValueError, TypeError) as error:
        raise RunError(f"{folder / EXPORT_CONFIG_FILE}: is damaged: {error}") from None
    kind = build(config.tokenizer, "tokenizer")
    names = [JOINT_TOKENIZER] if config.joint else [SOURCE_TOKENIZER, TARGET_TOKENIZER]
    for name in names:
        if name not in manifest["files"]:
            raise RunError(f"{folder / MANIFEST}: does not list {name}")
    tokenizers = [kind.read((folder / name).read_bytes()) for name in names]
    return ExportedModel(config, tokenizers[0], tokenizers[-1])


# ── what a folder was exported from ──


def exported_from(run: Path, checkpoint: Path) -> dict[str, str]:
    """The checksums of all run files that an exported folder depends on."""
    with remedy(Checkpoints(checkpoint.parent).advice_if_damaged(checkpoint)):
        manifest = read_json(checkpoint / MANIFEST)
        try:
            weights = str(manifest["files"][WEIGHTS]["sha256"])
        except (KeyError, TypeError):
            raise RunError(f"{checkpoint / MANIFEST}: is damaged: it does not list {WEIGHTS}") from None
    return {
        "weights": weights,
        "config": sha256(run / "config.toml"),
        "codecs": sha256(run / "codecs" / MANIFEST),
    }


def is_up_to_date(folder: Path, run: Path, checkpoint: Path) -> bool:
    """Whether a folder was exported from the current files of the run, by this version of Saccade."""
    try:
        manifest, expected = read_json(folder / MANIFEST), exported_from(run, checkpoint)
    except (RunError, OSError):
        return False
    if not isinstance(manifest, dict):
        return False
    return manifest.get("exported_from") == expected and manifest.get("saccade") == saccade.__version__


def was_written_by_export(folder: Path) -> bool:
    """Whether Saccade wrote a folder, so that it may overwrite it."""
    try:
        manifest = read_json(folder / MANIFEST)
    except RunError:
        return False
    return isinstance(manifest, dict) and "saccade" in manifest and "exported_from" in manifest


@contextmanager
def export_lock(folder: Path) -> Iterator[None]:
    """Only one process exports into a folder at a time; another one waits."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise write_error(folder, error, 0) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
