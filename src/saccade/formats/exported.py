"""What every deployed folder holds beside its model, so that it needs neither the run nor torch: tokenizers, decode
settings, and what it was made of. A folder made of something else than the run now holds is never used."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import saccade
from saccade.config import Config, Natural, build, plain, python_layer, resolve
from saccade.data.tokenizers import Tokenizer, TokenizerSlot
from saccade.decode.engine import DecodeConfig
from saccade.errors import ConfigError, RunError
from saccade.runs.checkpoints import FORMAT, WEIGHTS
from saccade.runs.files import FileWriter, read_json, sha256, to_json, verify, write_error, write_folder

if TYPE_CHECKING:
    from saccade.recipe import Recipe
    from saccade.runs.folder import RunFolder

EXPORT_CONFIG_FILE = "saccade.json"
EXPORTS = "exports"  # where a run keeps what was made of it
JOINT, SOURCE, TARGET = "joint.model", "source.model", "target.model"


class ExportableRun(Protocol):
    """A run, as a format sees it: what `saccade.load` gives. What is read from the disk when it is asked for is any
    type here, because a checker does not take it for a plain attribute."""

    folder: "RunFolder"
    checkpoint: Path
    recipe: "Recipe"
    task: Any  # Task
    codecs: Any  # Codecs
    model: Any  # Model
    on_torch: Any  # Engine


class ExportConfig(Config):
    """How text becomes ids and outputs are searched for. `source_places` and `target_places` are how long a sequence
    the model can take, `longest` how long the run lets an output become; 0: any."""

    tokenizer: TokenizerSlot
    joint: bool
    decode: DecodeConfig
    source_places: Natural = 0
    target_places: Natural = 0
    longest: Natural = 0


@dataclass(frozen=True)
class ExportedModel:
    """A deployed folder whose every byte is as written."""

    config: ExportConfig
    source: Tokenizer
    target: Tokenizer


def write_exported(
    run: ExportableRun, folder: Path, kind: str, model: Mapping[str, FileWriter], places: tuple[int, int]
) -> None:
    """The files of a model and all that goes with it, at once. `places`: how long source and target may be."""
    decoder = run.model.decoder
    package = {
        "tokenizer": plain(run.recipe.data.tokenizer),
        "joint": run.recipe.data.joint,
        "decode": plain(run.recipe.decode),
        "source_places": places[0],
        "target_places": places[1],
        "longest": decoder.longest or 0 if decoder else 0,
    }
    texts = {EXPORT_CONFIG_FILE: to_json(package), **run.task.files(run.codecs)}
    writers = {**model, **{name: lambda path, data=data: _write(path, data) for name, data in texts.items()}}
    facts = {
        "format": FORMAT,
        "saccade": saccade.__version__,
        "kind": kind,
        **built_from(run.folder.path, run.checkpoint),
    }
    needed = 2 * sum(each.numel() * each.element_size() for each in run.model.state_dict().values())
    write_folder(folder, writers, facts, needed)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def read_exported(folder: Path) -> ExportedModel:
    """Check and read a deployed folder."""
    manifest = verify(folder)
    missing = {EXPORT_CONFIG_FILE} - {*manifest["files"]}
    if missing or manifest.get("format") != FORMAT:
        raise RunError(f"{folder}: was not written by this version of Saccade; make it anew with `saccade export`")
    try:
        package: ExportConfig = resolve(
            ExportConfig, [python_layer(read_json(folder / EXPORT_CONFIG_FILE), EXPORT_CONFIG_FILE)]
        ).config
    except (ConfigError, ValueError, TypeError) as error:
        raise RunError(f"{folder / EXPORT_CONFIG_FILE}: is damaged: {error}") from None
    kind = build(package.tokenizer, "tokenizer")
    names = [JOINT] if package.joint else [SOURCE, TARGET]
    for name in names:
        if name not in manifest["files"]:
            raise RunError(f"{folder / 'manifest.json'}: does not list {name}")
    read = [kind.read((folder / name).read_bytes()) for name in names]
    return ExportedModel(package, read[0], read[-1])


# ── what it was made of ──


def built_from(run: Path, checkpoint: Path) -> dict[str, Any]:
    """Checksums of all that a deployed folder depends on."""
    manifest = read_json(checkpoint / "manifest.json")
    try:
        weights = str(manifest["files"][WEIGHTS]["sha256"])
    except (KeyError, TypeError):
        raise RunError(f"{checkpoint / 'manifest.json'}: is damaged: it does not list {WEIGHTS}") from None
    return {
        "checkpoint": checkpoint.name,
        "made_of": {
            "weights": weights,
            "config": sha256(run / "config.toml"),
            "tokenizer": sha256(run / "tokenizer" / "manifest.json"),
        },
    }


def is_up_to_date(folder: Path, run: Path, checkpoint: Path) -> bool:
    """Whether a folder was made of what the run holds now, by this version of Saccade."""
    try:
        manifest, wanted = read_json(folder / "manifest.json"), built_from(run, checkpoint)
    except (RunError, OSError):
        return False
    known = manifest if isinstance(manifest, dict) else {}
    return known.get("made_of") == wanted["made_of"] and known.get("saccade") == saccade.__version__


def was_written_by_export(folder: Path) -> bool:
    """Whether Saccade wrote a folder, and so may write it anew."""
    try:
        manifest = read_json(folder / "manifest.json")
    except RunError:
        return False
    return isinstance(manifest, dict) and "saccade" in manifest and "made_of" in manifest


@contextmanager
def exporting(folder: Path) -> Iterator[None]:
    """One at a time: who comes second waits, and finds what the first has made."""
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
