"""Files that are either wholly there or not at all."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from saccade.errors import RunError


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a small file at once."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync(path.parent)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path}: is missing") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: is damaged: {error}") from None


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"


FileWriter = Callable[[Path], None]


def write_folder(folder: Path, writers: Mapping[str, FileWriter], facts: Mapping[str, Any], needed: int) -> None:
    """Write files into a temporary folder beside `folder`, then a manifest of their checksums, then rename."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        _room(folder.parent, needed)
        temporary.mkdir(parents=True)
        for name, write in writers.items():
            write(temporary / name)
            os.chmod(temporary / name, 0o666 & ~_umask())  # safetensors leaves 0600, which a server cannot read
            sync(temporary / name)
        files = {
            name: {"sha256": sha256(temporary / name), "bytes": (temporary / name).stat().st_size} for name in writers
        }
        write_bytes(temporary / "manifest.json", to_json({**facts, "files": files}))
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise write_error(folder.parent, error, needed) from None
    _put(temporary, folder)


def _put(temporary: Path, folder: Path) -> None:
    if folder.exists():  # left by a run that was killed after its rename: it holds the same, or is replaced
        discard(folder)
    os.rename(temporary, folder)
    sync(folder.parent)


def discard(folder: Path) -> None:
    """Delete a folder so that a half-deleted one is never taken for a whole one."""
    doomed = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def clear_leftovers(folder: Path) -> None:
    """What a killed run left half written or half deleted."""
    for path in [*folder.glob(".*.tmp"), *folder.glob(".*.old")]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of a folder whose every byte is as written, or an error that names the file."""
    manifest = read_json(folder / "manifest.json")
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict):
        raise RunError(f"{folder / 'manifest.json'}: is damaged: it lists no files")
    for name, facts in files.items():
        path = folder / name
        if Path(name).name != name or name == ".." or path.is_symlink():
            raise RunError(f"{path}: leads out of its folder")
        if not path.is_file():
            raise RunError(f"{path}: is missing")
        if not isinstance(facts, dict) or path.stat().st_size != facts.get("bytes"):
            raise RunError(f"{path}: has {path.stat().st_size} bytes, not those of the manifest")
        if sha256(path) != facts.get("sha256"):
            raise RunError(f"{path}: checksum mismatch; the file was changed or damaged")
    return manifest


def _room(folder: Path, needed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < needed:
        raise OSError(errno.ENOSPC, "No space left on device")


def write_error(folder: Path, error: OSError, needed: int) -> RunError:
    """What to say when something could not be written: above all how many bytes are missing on a full disk."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return RunError(f"{error.filename or folder}: cannot be written: {error.strerror or error}")
    free = shutil.disk_usage(folder).free
    return RunError(
        f"{folder}: the disk is full: a checkpoint needs {needed:,} bytes, {free:,} are free, "
        f"{max(0, needed - free):,} are missing; "
        "the last checkpoint is intact: make room and run the same command again"
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
