"""An entry of the cache is complete and undamaged, or it is made again; processes share it."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from saccade.encoding.cache import Cache, default_folder, usable_folder
from saccade.errors import RunError
from saccade.runs.files import locked

KEY = "k"


class Maker:
    """Makes an entry with one file, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> Mapping[str, Any]:
        self.calls += 1
        (folder / "array").write_bytes(b"content" * 100)
        return {"rows": 7}


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, messages: list[str]) -> Cache:
    return Cache(tmp_path / "cache", messages.append)


def test_entry_is_made_once(cache: Cache, messages: list[str]) -> None:
    make = Maker()
    entries = [cache.entry(KEY, make) for _ in range(3)]
    assert make.calls == 1
    assert {entry.manifest["rows"] for entry in entries} == {7}
    assert (entries[0].folder / "array").read_bytes() == b"content" * 100
    assert not messages


def flipped(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")


@pytest.mark.parametrize("damage", [flipped, lambda path: path.write_bytes(b"content"), Path.unlink])
@pytest.mark.parametrize("name", ["array", "manifest.json"])
def test_damaged_entry_is_made_again(cache: Cache, messages: list[str], damage: Any, name: str) -> None:
    make = Maker()
    damage(cache.entry(KEY, make).folder / name)
    assert (cache.entry(KEY, make).folder / "array").read_bytes() == b"content" * 100
    assert make.calls == 2
    assert [name in message and "made again" in message for message in messages] == [True]


def test_failed_making_leaves_nothing(cache: Cache) -> None:
    def make(folder: Path) -> Mapping[str, Any]:
        (folder / "array").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.entry(KEY, make)
    assert {path.name for path in cache.folder.iterdir()} == {"locks", "CACHEDIR.TAG"}


SLOW_MAKER = """
import sys, time
from pathlib import Path
from saccade.encoding.cache import Cache

def make(folder):
    (folder / "array").write_bytes(b"half")
    print("making", flush=True)
    time.sleep(float(sys.argv[3]))
    return {}

Cache(Path(sys.argv[1]), print).entry(sys.argv[2], make)
"""


def slow_maker(folder: Path, key: str, seconds: float) -> subprocess.Popen[str]:
    """Another process that makes an entry, and has begun."""
    command = [sys.executable, "-c", SLOW_MAKER, str(folder), key, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "making\n"
    return process


def test_killed_process_leaves_no_entry_and_its_leftovers_are_deleted(cache: Cache) -> None:
    with slow_maker(cache.folder, "other", 60) as killed, slow_maker(cache.folder, "alive", 60) as alive:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert not (cache.folder / "other").exists()
        assert (cache.folder / ".other.tmp").exists()
        cache.entry(KEY, Maker())
        assert not (cache.folder / ".other.tmp").exists()
        assert (cache.folder / ".alive.tmp").exists(), "the work of a living process was deleted"
        alive.kill()


def test_second_process_waits_and_names_the_first(cache: Cache, messages: list[str]) -> None:
    make = Maker()
    with slow_maker(cache.folder, KEY, 0.5) as first:
        entry = cache.entry(KEY, make)
        first.wait()
    assert make.calls == 0
    assert (entry.folder / "array").read_bytes() == b"half"
    assert messages == [f"process {first.pid} is writing the same data to the cache; waiting until it ends"]


def test_complete_entry_is_used_while_its_lock_is_held(cache: Cache) -> None:
    cache.entry(KEY, Maker())
    with locked(cache.folder / "locks" / KEY, lambda pid: None):
        reader = threading.Thread(target=cache.entry, args=(KEY, Maker()))
        reader.start()
        reader.join(10)
        assert not reader.is_alive()


def test_read_only_cache_serves_complete_entries_and_refuses_others(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.entry(KEY, Maker())

    def read_only(path: Path, *args: Any, **options: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)
    assert cache.entry(KEY, Maker()).manifest["rows"] == 7
    with pytest.raises(RunError, match=r"cannot be written: Read-only file system; .*SACCADE_CACHE"):
        cache.entry("new", Maker())


def test_entry_holds_no_path(cache: Cache) -> None:
    entry = cache.entry(KEY, Maker())
    for path in entry.folder.iterdir():
        assert str(cache.folder.parent).encode() not in path.read_bytes()
    assert json.loads((entry.folder / "manifest.json").read_bytes())["files"].keys() == {"array"}


# ── where the cache is ────────────────────────────────────────────────────────────────────────────


def test_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("SACCADE_CACHE", "/s")
    assert default_folder() == Path("/s")
    monkeypatch.setenv("SACCADE_CACHE", "")
    assert default_folder() == Path("/x/saccade")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert default_folder() == Path("/home/u/.cache/saccade")


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("home", ["unset", "read-only"])
def test_run_folder_is_used_without_a_writable_home(
    home: str, tmp_path: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACCADE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home == "unset":
        monkeypatch.setattr(Path, "home", no_home)
    else:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        (tmp_path / "home").write_text("a file, so that no folder can be made in it", "utf-8")
    assert usable_folder(tmp_path / "run", messages.append) == tmp_path / "run"
    assert ["set SACCADE_CACHE" in message for message in messages] == [True]


def test_named_folder_is_never_replaced(tmp_path: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "file" / "cache"))
    folder = usable_folder(tmp_path / "run", messages.append)
    assert not messages
    with pytest.raises(RunError, match="the cache cannot be written"):
        Cache(folder, messages.append).entry(KEY, Maker())


def test_full_disk_is_reported_with_the_ways_out(cache: Cache) -> None:
    def make(folder: Path) -> Mapping[str, Any]:
        raise OSError(28, os.strerror(28))

    with pytest.raises(RunError, match=r"disk is full; free some space.*SACCADE_CACHE.*data\.cache"):
        cache.entry(KEY, make)


def test_tokenizer_process_does_not_import_torch() -> None:
    code = "import sys, saccade.encoding.tokenizer_process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
