"""The cache: a folder with one entry for each key, shared by all trainings. An entry is a folder of files with a
manifest of their checksums; it is complete or does not exist."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from saccade.errors import RunError, WriteError, remedy
from saccade.runs.files import discard, locked, new_folder, verify, write_error

VARIABLE = "SACCADE_CACHE"
ADVICE = f'you can also set {VARIABLE} to another folder, or data.cache to "never"'
CACHE_TAG = "CACHEDIR.TAG"  # https://bford.info/cachedir: backup programs leave the folder out
CACHE_TAG_CONTENT = "Signature: 8a477f597d28d172789f06886806bc55\n# Encoded data of Saccade; it may be deleted.\n"

Make = Callable[[Path], Mapping[str, Any]]  # writes the files of an entry, and returns the facts for its manifest


@dataclass(frozen=True)
class Entry:
    """A complete entry: its folder, and its manifest."""

    folder: Path
    manifest: dict[str, Any]


def key_of(facts: Mapping[str, Any]) -> str:
    """The key of an entry: a checksum of everything that its content depends on."""
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:40]


def default_folder() -> Path:
    """`$SACCADE_CACHE`, else `$XDG_CACHE_HOME/saccade`, else `~/.cache/saccade`."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return Path(xdg if os.path.isabs(xdg) else Path.home() / ".cache") / "saccade"
    except RuntimeError:
        raise RunError("there is no home folder for the cache") from None


def usable_folder(fallback: Path, report: Callable[[str], None]) -> Path:
    """The default folder; `fallback` if that cannot be written and the user did not name it."""
    if not (problem := why_not_default_folder()):
        return default_folder()
    report(f"the cache is in {fallback}, because {problem}; set {VARIABLE} to share it between trainings")
    return fallback


def why_not_default_folder() -> str:
    """Why another folder than the default one must be used; "" if that can be written, or if the user named it, because
    a named folder is never replaced."""
    if os.environ.get(VARIABLE):
        return ""
    try:
        folder = default_folder()
    except RunError as error:
        return str(error)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder} cannot be made ({error.strerror or error})"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written"


@dataclass(frozen=True)
class Cache:
    """The entries in a folder. Two processes never make the same entry: the second one waits for the first."""

    folder: Path
    report: Callable[[str], None]

    def entry(self, key: str, make: Make) -> Entry:
        """The entry of a key. It is made if it does not exist or is damaged."""
        path = self.folder / key
        with suppress(RunError):
            return self._verified(path)
        with remedy(ADVICE, WriteError):
            try:
                self._prepare_folder()
                with locked(self._lock(key), self._wait):
                    return self._verified_or_made(path, make)
            except OSError as error:
                raise write_error(self.folder, error, 0) from None

    def _verified_or_made(self, path: Path, make: Make) -> Entry:
        if path.is_dir():
            try:
                return self._verified(path)
            except RunError as error:
                self.report(f"{error}; it is made again")
                discard(path)
        self._delete_leftovers(path.name)
        facts: dict[str, Any] = {}
        with new_folder(path, facts, 0) as temporary:
            facts |= make(temporary)
        return self._verified(path)

    def _verified(self, path: Path) -> Entry:
        return Entry(path, verify(path))

    def _prepare_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "locks").mkdir(exist_ok=True)
        tag = self.folder / CACHE_TAG
        if not tag.exists():
            tag.write_text(CACHE_TAG_CONTENT, "utf-8")

    def _lock(self, key: str) -> Path:
        return self.folder / "locks" / key

    def _wait(self, pid: str) -> None:
        self.report(f"process {pid} is writing the same data to the cache; waiting until it ends")

    def _delete_leftovers(self, own_key: str) -> None:
        """Delete what killed processes had only partly written: temporary folders whose lock is free. The lock is held
        meanwhile, so that no other process makes the entry at the same time."""
        for path in [*self.folder.glob(".*.tmp"), *self.folder.glob(".*.old")]:
            key = path.stem.removeprefix(".")
            lock = nullcontext() if key == own_key else locked(self._lock(key), _skip)
            with suppress(RunError), lock:
                shutil.rmtree(path, ignore_errors=True)


def _skip(pid: str) -> NoReturn:
    raise RunError(f"process {pid} is writing it")
