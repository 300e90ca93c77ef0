"""An entry of the cache is complete and undamaged, or it is made again; processes share it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from saccade.encoding.cache import Cache, default_folder, usable_folder
from saccade.errors import RunError
from saccade.runs.files import locked, verify

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


def test_leftovers_are_not_deleted_while_another_process_makes_the_entry(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache.folder / ".other.tmp").mkdir(parents=True)
    (cache.folder / "locks").mkdir()
    begun, deleted = threading.Event(), threading.Event()

    def make(folder: Path) -> Mapping[str, Any]:
        (folder / "a").write_bytes(b"a")
        begun.set()
        assert deleted.wait(60)
        (folder / "b").write_bytes(b"b")
        return {}

    maker = threading.Thread(target=Cache(cache.folder, lambda waits: begun.set()).entry, args=("other", make))
    delete = shutil.rmtree

    def delete_late(path: Path, **options: Any) -> None:
        """Delete the leftovers when the other process has begun to make the entry, or waits."""
        if path.name == ".other.tmp" and not maker.ident:
            maker.start()
            assert begun.wait(60)
            delete(path, **options)
            deleted.set()
        else:
            delete(path, **options)

    monkeypatch.setattr(shutil, "rmtree", delete_late)
    cache.entry(KEY, Maker())
    maker.join()
    assert cache.entry("other", Maker()).manifest["files"].keys() == {"a", "b"}


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


NOBODY = 65534


@contextmanager
def bound_by_permissions() -> Iterator[None]:
    """Act as a user who is bound by the permissions of files, which root is not."""
    if os.geteuid():
        yield
        return
    try:
        os.seteuid(NOBODY)
    except OSError:
        pytest.skip("this root cannot act as another user")
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def others_cache(messages: list[str]) -> Iterator[Cache]:
    """A cache with the entry KEY, in a folder that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        cache = Cache(Path(name) / "cache", messages.append)
        cache.entry(KEY, Maker())
        yield cache
        for path in (cache.folder, *cache.folder.glob("locks")):
            os.chmod(path, 0o755)


def read_only_lock(folder: Path) -> Path:
    for path in (folder, folder / "locks"):
        os.chmod(path, 0o777)
    lock = folder / "locks" / "new"
    lock.touch()
    os.chmod(lock, 0o444)
    return lock


def read_only_locks(folder: Path) -> Path:
    os.chmod(folder, 0o777)
    os.chmod(folder / "locks", 0o555)
    return folder / "locks" / "new"


def read_only_folder(folder: Path) -> Path:
    shutil.rmtree(folder / "locks")
    os.chmod(folder, 0o555)
    return folder / "locks"


@pytest.mark.parametrize("protect", [read_only_lock, read_only_locks, read_only_folder])
def test_cache_of_another_user_serves_complete_entries_and_refuses_others(
    protect: Callable[[Path], Path], others_cache: Cache
) -> None:
    protected = protect(others_cache.folder)
    with bound_by_permissions():
        assert others_cache.entry(KEY, Maker()).manifest["rows"] == 7
        with pytest.raises(RunError) as error:
            others_cache.entry("new", Maker())
    assert str(error.value).startswith(f"{protected}: cannot be written: Permission denied; you can also set SACCADE")


def test_damaged_entry_that_cannot_be_replaced_is_reported(others_cache: Cache, messages: list[str]) -> None:
    flipped(others_cache.folder / KEY / "array")
    lock = others_cache.folder / "locks" / KEY
    os.chmod(lock, 0o666)
    os.chmod(others_cache.folder, 0o555)
    with bound_by_permissions(), pytest.raises(RunError, match=r"cannot be written: Permission denied; .*SACCADE"):
        others_cache.entry(KEY, Maker())
    assert ["made again" in message for message in messages] == [True]


def test_leftovers_of_another_user_do_not_prevent_an_entry(others_cache: Cache) -> None:
    lock = read_only_lock(others_cache.folder)
    lock.rename(lock.with_name("left"))
    (others_cache.folder / ".left.tmp").mkdir()
    with bound_by_permissions():
        assert others_cache.entry("new", Maker()).manifest["rows"] == 7


def test_entry_that_is_deleted_while_it_is_verified_is_made_again(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, is_file = cache.entry(KEY, Maker()), Path.is_file

    def deleted_afterwards(path: Path) -> bool:
        found = is_file(path)
        shutil.rmtree(entry.folder, ignore_errors=True)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_file", deleted_afterwards)
        with pytest.raises(RunError, match="array: cannot be read: No such file"):
            verify(entry.folder)
    assert cache.entry(KEY, Maker()).manifest["rows"] == 7


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
    with pytest.raises(RunError, match=r"cannot be written: Not a directory; .*SACCADE_CACHE"):
        Cache(folder, messages.append).entry(KEY, Maker())


def test_full_disk_is_reported_with_the_ways_out(cache: Cache) -> None:
    def make(folder: Path) -> Mapping[str, Any]:
        raise OSError(28, os.strerror(28))

    with pytest.raises(RunError, match=r"disk is full; free some space.*SACCADE_CACHE.*data\.cache"):
        cache.entry(KEY, make)


def test_error_that_no_folder_causes_does_not_advise_another_folder(cache: Cache) -> None:
    def make(folder: Path) -> Mapping[str, Any]:
        raise RunError("the other process ended")

    with pytest.raises(RunError, match=r"^the other process ended$"):
        cache.entry(KEY, make)


def test_tokenizer_process_does_not_import_torch() -> None:
    code = "import sys, saccade.encoding.tokenizer_process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
