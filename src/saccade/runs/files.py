"""Atomic writes: a file or folder is complete or does not exist, even after a kill or on a full disk. Locks."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from saccade.errors import RunError, WriteError

MANIFEST = "manifest.json"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """fsync a file, or a folder (that is, the names in it)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, or replace it atomically."""
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
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError as error:
        raise RunError(f"{path}: is damaged: {error}") from None


def _unreadable(path: Path, error: OSError) -> RunError:
    return RunError(f"{path}: cannot be read: {error.strerror or error}")


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"


FileWriter = Callable[[Path], None]


def write_folder(folder: Path, writers: Mapping[str, FileWriter], facts: Mapping[str, Any], needed: int) -> None:
    """Write files into a `new_folder`."""
    with new_folder(folder, facts, needed) as temporary:
        for name, write in writers.items():
            write(temporary / name)


@contextmanager
def new_folder(folder: Path, facts: Mapping[str, Any], needed: int) -> Iterator[Path]:
    """A temporary folder beside `folder`, for files. At the end it gets a manifest with their checksums and is renamed;
    after an error it is deleted.

    `facts` are further entries of the manifest; they may be added until the end. `needed` is the number of bytes that
    must be free on the disk.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        _check_free_space(folder.parent, needed)
        temporary.mkdir(parents=True)
        yield temporary
        paths = sorted(temporary.iterdir())
        for path in paths:
            os.chmod(path, 0o666 & ~_umask())  # safetensors sets 0600, but a server may be another user
            sync(path)
        files = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in paths}
        write_bytes(temporary / MANIFEST, to_json({**facts, "files": files}))
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise write_error(folder.parent, error, needed) from None
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _move(temporary, folder)


@contextmanager
def locked(path: Path, busy: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a file. If another process holds it, call `busy` with its id, then wait. The operating system
    releases the lock when the process ends, however it ends."""
    with ExitStack() as stack:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            stack.callback(os.close, handle)
            _lock(handle, busy)
        except OSError as error:
            raise write_error(path.parent, error, 0) from None
        yield


def _lock(handle: int, busy: Callable[[str], None]) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        busy(os.read(handle, 20).decode(errors="replace").strip() or "unknown")
        fcntl.flock(handle, fcntl.LOCK_EX)
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


def _move(temporary: Path, folder: Path) -> None:
    if folder.exists():  # an earlier export or average, or the codecs of a training killed before its first checkpoint
        discard(folder)
    os.rename(temporary, folder)
    sync(folder.parent)


def discard(folder: Path) -> None:
    """Rename a folder, then delete it, so that a kill in between does not leave an incomplete folder of its name."""
    renamed = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(renamed, ignore_errors=True)
    os.rename(folder, renamed)
    shutil.rmtree(renamed, ignore_errors=True)


def clear_leftovers(folder: Path) -> None:
    """Delete what a killed training had only partly written or deleted."""
    for path in [*folder.glob(".*.tmp"), *folder.glob(".*.old")]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def verify(folder: Path) -> dict[str, Any]:
    """Check size and checksum of every file of a folder and return the manifest. An error names the damaged file."""
    manifest = read_json(folder / MANIFEST)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict):
        raise RunError(f"{folder / MANIFEST}: is damaged: it lists no files")
    for name, expected in files.items():
        try:
            _verify_file(folder / name, name, expected)
        except OSError as error:  # also if another process deletes the folder meanwhile
            raise _unreadable(folder / name, error) from None
    return manifest


def _verify_file(path: Path, name: str, expected: object) -> None:
    if Path(name).name != name or name == ".." or path.is_symlink():
        raise RunError(f"{path}: points outside its folder; the files must be in the folder itself, not links")
    if not path.is_file():
        raise RunError(f"{path}: is missing")
    size = path.stat().st_size
    if not isinstance(expected, dict) or size != expected.get("bytes"):
        raise RunError(f"{path}: is damaged: its size, {size} bytes, is not that of the manifest")
    if sha256(path) != expected.get("sha256"):
        raise RunError(f"{path}: checksum mismatch: the file was changed or damaged")


def _check_free_space(folder: Path, needed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < needed:
        raise OSError(errno.ENOSPC, "No space left on device")


def write_error(folder: Path, error: OSError, needed: int) -> WriteError:
    """The error for a failed write. On a full disk it states how many bytes are missing, if `needed` is known (not
    0)."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return WriteError(f"{error.filename or folder}: cannot be written: {error.strerror or error}")
    free = shutil.disk_usage(folder).free
    missing = f"{max(0, needed - free):,} are missing"
    sizes = f": writing needs {needed:,} bytes, {free:,} are free, {missing}" if needed else ""
    return WriteError(f"{folder}: the disk is full{sizes}; free some space and run the same command again")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
