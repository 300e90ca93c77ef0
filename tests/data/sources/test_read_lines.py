"""Reading lines in blocks gives the same rows and errors as reading them one by one."""

import gzip
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from saccade.data.sources import rows
from saccade.data.sources.rows import BadRow, line_total, read_lines
from saccade.data.sources.tsv import Tsv
from saccade.errors import DataError

LINE = st.one_of(
    st.binary(max_size=12),
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=12).map(str.encode),
    st.sampled_from(
        [b"", b"\r", b"a\r", b"\xef\xbb\xbfx", b"a\0b", b"\xff", "é\u2028\x85".encode(), b"x" * 30, b"y" * 70]
    ),
)
CONTENT = st.tuples(st.lists(LINE, max_size=12), st.sampled_from([b"", b"\n"])).map(
    lambda parts: b"\n".join(parts[0]) + parts[1]
)


def lines_one_by_one(path: Path, name: str) -> Iterator[str | BadRow]:
    """The specification of `read_lines`."""
    with rows._open_text(path, name) as stream:
        for number in count(1):
            try:
                raw = stream.readline()
            except (EOFError, OSError, rows.zlib.error) as error:
                raise DataError(
                    f"{name}:{number}: the file is damaged from here on ({error}); download it again"
                ) from error
            if not raw:
                return
            yield rows._text(raw, f"{name}:{number}", number == 1)


def outcome(lines: Iterator[str | BadRow]) -> list[object]:
    """The lines, and the message of the error that ended them."""
    result: list[object] = []
    try:
        result.extend(lines)
    except DataError as error:
        result.append(str(error))
    return result


def assert_same(path: Path) -> None:
    assert outcome(read_lines(path, path.name)) == outcome(lines_one_by_one(path, path.name))


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short blocks and lines, so that short files have several blocks and lines that are too long."""
    for name, value in {
        "READ_BYTES": 5,
        "LINES_BLOCK_BYTES": 16,
        "MAX_LINE_CHARACTERS": 10,
        "MAX_LINE_BYTES": 40,
    }.items():
        monkeypatch.setattr(rows, name, value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines")


@given(CONTENT)
@settings(max_examples=200, deadline=None)
def test_blocks_give_the_rows_of_single_lines(folder: Path, content: bytes) -> None:
    assume(not content.startswith(rows.GZIP_MAGIC))
    path = folder / "t.txt"
    path.write_bytes(content)
    assert_same(path)
    assert line_total(Tsv(folder, file="t.txt")) == content.count(b"\n")


@pytest.mark.parametrize("kept", [1, 30, 200, 2000, 20_000, -9, -1])
def test_damaged_gzip_gives_the_same_lines_and_error(folder: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.undo()
    text = "\n".join(f"{n * n % 7919} and {n % 977}" for n in range(30_000)).encode()
    path = folder / "t.gz"
    path.write_bytes(gzip.compress(text)[:kept] if kept > 1 else gzip.compress(text)[:-9] + b"123456789")
    assert_same(path)
    if kept == -9:
        damaged = bytearray(gzip.compress(text))
        damaged[len(damaged) // 2] ^= 255
        path.write_bytes(damaged)
        assert_same(path)


def test_memory_does_not_grow_with_a_long_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "long.txt"
    path.write_bytes(b"a\n" + b"x" * 5000 + b"\nb\n")
    longest = 0

    def measured(block: bytes, first: bool) -> list[str]:
        nonlocal longest
        longest = max(longest, len(block))
        return []

    monkeypatch.setattr(rows, "_usable_lines", measured)
    assert [type(line) for line in read_lines(path, "long.txt")] == [str, BadRow, str]
    assert longest < 100
