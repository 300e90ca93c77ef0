"""The labeled source: lines of a label and a text."""

import gzip
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.sources import SOURCES, BadRow, Pair, load_rows
from saccade.data.sources.labeled import LabeledLines
from saccade.errors import DataError


def labeled(folder: Path, content: bytes, name: str = "t.txt") -> LabeledLines:
    (folder / name).write_bytes(content)
    return LabeledLines(folder, file=name)


def test_trec_and_fasttext_lines_are_read(tmp_path: Path):
    content = b"DESC:manner How did serfdom develop ?\n__label__pos a fine film\n__label__2\ttabs too \n"
    assert list(labeled(tmp_path, content).rows()) == [
        Pair("How did serfdom develop ?", "DESC:manner", "t.txt:1"),
        Pair("a fine film", "pos", "t.txt:2"),
        Pair("tabs too", "2", "t.txt:3"),
    ]


def test_label_ends_at_the_first_separator(tmp_path: Path):
    (row,) = labeled(tmp_path, "1 \t a  b\tc\u2028d\u00a0\n".encode()).rows()
    assert row == Pair("a  b\tc\u2028d\u00a0", "1", "t.txt:1")


def test_gzip_and_missing_final_newline_are_accepted(tmp_path: Path):
    source = labeled(tmp_path, gzip.compress(b"1 a\n0 b"), "t.txt.gz")
    assert [(row.source, row.target) for row in load_rows(source, skip_bad=False).rows] == [("a", "1"), ("b", "0")]


def test_empty_file_has_no_rows(tmp_path: Path):
    assert list(labeled(tmp_path, b"").rows()) == []


BAD = {
    "blank": (b"", "the line is empty"),
    "spaces": (b"  \t", "the line is empty"),
    "no label": (b" text", "has no label"),
    "empty label": (b"__label__ text", "has no label"),
    "no text": (b"DESC", "has no text after its label"),
    "only spaces after": ("DESC \u00a0 ".encode(), "has no text after its label"),
    "two labels": (b"__label__a __label__b text", "has more than one label"),
    "latin-1": (b"DESC caf\xe9", "byte 0xe9 at offset 8 of the line is not UTF-8; convert the file to UTF-8 (iconv)"),
    "crlf": (b"DESC text\r", "the line ends in CRLF"),
    "nul": (b"DESC a\0b", "NUL byte"),
}


@pytest.mark.parametrize(("line", "reason"), BAD.values(), ids=BAD.keys())
def test_unusable_line_is_a_bad_row(tmp_path: Path, line: bytes, reason: str):
    good = b"1 good\n"
    rows = list(labeled(tmp_path, good + line + b"\n" + good).rows())
    assert [type(row) for row in rows] == [Pair, BadRow, Pair]
    assert str(rows[1]).startswith("t.txt:2: ")
    assert reason in str(rows[1])


def test_byte_order_mark_is_a_bad_row(tmp_path: Path):
    (row,) = labeled(tmp_path, b"\xef\xbb\xbf1 text\n").rows()
    assert "byte order mark" in str(row)


def test_truncated_gzip_is_an_error_with_its_line(tmp_path: Path):
    packed = gzip.compress(b"".join(b"%d text %d\n" % (n % 7, n * 7919 % 1000) for n in range(5000)))
    with pytest.raises(DataError, match=r"^t\.gz:\d+: the file is damaged from here on"):
        list(labeled(tmp_path, packed[: len(packed) // 2], "t.gz").rows())


def test_source_is_registered():
    assert SOURCES["labeled"] is LabeledLines


def test_missing_file_names_its_option(tmp_path: Path):
    with pytest.raises(DataError, match="no such file; correct the option 'file'"):
        list(LabeledLines(tmp_path, file="none").rows())


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=120) | st.text("ab_ \t\n", max_size=60).map(str.encode))
def test_any_bytes_give_one_row_per_line(content: bytes):
    with tempfile.TemporaryDirectory() as name:
        try:
            rows = list(labeled(Path(name), content).rows())
        except DataError:
            return
        assert len(rows) == content.count(b"\n") + (not content.endswith(b"\n") and content != b"")


@pytest.mark.skipif("SACCADE_DATA" not in os.environ, reason="SACCADE_DATA does not name the data folder")
def test_trec_has_one_line_that_is_not_utf8():
    loaded = load_rows(
        LabeledLines(Path(os.environ["SACCADE_DATA"]), file="classification/trec-train.all.gz"), skip_bad=True
    )
    assert (len(loaded.rows), loaded.bad_rows) == (5451, 1)
    assert len({row.target for row in loaded.rows}) == 6
