"""The pairs, tsv and jsonl sources: bad rows are reported as `file:line: reason`, and good text is unchanged."""

import gzip
import inspect
import json
import os
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.sources import SOURCES, BadRow, Pair, Source, load_rows
from saccade.data.sources.jsonl import Jsonl
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.tsv import Tsv
from saccade.errors import DataError


def pairs_of(folder: Path, source: bytes, target: bytes) -> Pairs:
    (folder / "t.en").write_bytes(source)
    (folder / "t.de").write_bytes(target)
    return Pairs(folder, src="t.en", tgt="t.de")


def tsv_of(folder: Path, content: bytes, **options: int) -> Tsv:
    (folder / "t.tsv").write_bytes(content)
    return Tsv(folder, file="t.tsv", **options)  # type: ignore[arg-type]


def jsonl_of(folder: Path, *lines: str, src: str = "src", tgt: str = "tgt") -> Jsonl:
    (folder / "t.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return Jsonl(folder, file="t.jsonl", src=src, tgt=tgt)


def bad_rows_of(source: Source) -> list[BadRow]:
    return [row for row in source.rows() if isinstance(row, BadRow)]


def only_bad_row(source: Source) -> str:
    bad_rows = bad_rows_of(source)
    assert len(bad_rows) == 1, bad_rows
    return str(bad_rows[0])


def texts_of(source: Source) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in load_rows(source, skip_bad=False).rows]


# pairs


def test_pairs_have_their_location(tmp_path: Path):
    source = pairs_of(tmp_path, b"one\ntwo\n", "eins\nzwei ü\n".encode())
    assert list(source.rows()) == [Pair("one", "eins", "t.en:1"), Pair("two", "zwei ü", "t.en:2")]
    assert source.files() == {"src": tmp_path / "t.en", "tgt": tmp_path / "t.de"}


def test_location_has_the_file_name_as_given(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    pairs_of(tmp_path / "sub", b"one\n", b"eins\n")
    (row,) = Pairs(tmp_path, src="sub/t.en", tgt="sub/t.de").rows()
    assert row.location == "sub/t.en:1"


def test_gzip_is_read_like_plain_text(tmp_path: Path):
    (tmp_path / "t.en.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (tmp_path / "t.de").write_bytes(b"eins\nzwei\n")
    source = Pairs(tmp_path, src="t.en.gz", tgt="t.de")
    assert texts_of(source) == [("one", "eins"), ("two", "zwei")]


def test_missing_final_newline_is_accepted(tmp_path: Path):
    assert texts_of(pairs_of(tmp_path, b"one\ntwo", b"eins\nzwei\n")) == [("one", "eins"), ("two", "zwei")]


def test_empty_lines_are_not_bad_rows(tmp_path: Path):
    assert texts_of(pairs_of(tmp_path, b"\ntwo\n", b"eins\n\n")) == [("", "eins"), ("two", "")]


def test_empty_files_have_no_pairs(tmp_path: Path):
    assert texts_of(pairs_of(tmp_path, b"", b"")) == []


def test_invalid_utf8_is_a_bad_row(tmp_path: Path):
    bad_row = only_bad_row(pairs_of(tmp_path, b"one\ntw\xfc\n", b"eins\nzwei\n"))
    assert bad_row.startswith("t.en:2: byte 0xfc at offset 2 of the line is not UTF-8")


def test_utf8_encoded_surrogate_is_a_bad_row(tmp_path: Path):
    bad_row = only_bad_row(pairs_of(tmp_path, b"a\n", b"\xed\xa0\x80\n"))
    assert bad_row.startswith("t.de:1: byte 0xed at offset 0")


def test_nul_byte_is_a_bad_row(tmp_path: Path):
    bad_row = only_bad_row(pairs_of(tmp_path, b"one\ntwo\n", b"eins\nzw\0i\n"))
    assert bad_row.startswith("t.de:2: NUL byte at offset 2")


def test_byte_order_mark_is_a_bad_row(tmp_path: Path):
    bad_row = only_bad_row(pairs_of(tmp_path, b"\xef\xbb\xbfone\ntwo\n", b"eins\nzwei\n"))
    assert bad_row.startswith("t.en:1: the file starts with a byte order mark")


def test_zero_width_no_break_space_elsewhere_is_text(tmp_path: Path):
    source = pairs_of(tmp_path, "one\n\ufefftwo\n".encode(), b"eins\nzwei\n")
    assert texts_of(source)[1] == ("\ufefftwo", "zwei")


def test_crlf_is_a_bad_row(tmp_path: Path):
    bad_rows = bad_rows_of(pairs_of(tmp_path, b"one\r\ntwo\r\n", b"eins\nzwei\n"))
    assert [bad_row.location for bad_row in bad_rows] == ["t.en:1", "t.en:2"]
    assert "CRLF" in bad_rows[0].reason


@pytest.mark.parametrize("newline", [b"", b"\n", b"\nnext\n"])
def test_line_of_ten_megabytes_is_one_bad_row_in_bounded_memory(tmp_path: Path, newline: bytes):
    source = pairs_of(tmp_path, b"one\n" + b"x" * 10_000_000 + newline, b"eins\nzwei\n" + newline[1:])
    tracemalloc.start()
    bad_row = only_bad_row(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bad_row.startswith("t.en:2: the line has more than 100,000 characters")
    assert peak < 3_000_000


def test_longest_allowed_line_has_a_hundred_thousand_characters(tmp_path: Path):
    widest = "\U0001f600" * 100_000
    assert texts_of(pairs_of(tmp_path, f"{widest}\n".encode(), b"a\n")) == [(widest, "a")]
    assert "more than 100,000" in only_bad_row(pairs_of(tmp_path, b"x" * 100_001 + b"\n", b"a\n"))
    assert "more than 100,000" in only_bad_row(pairs_of(tmp_path, f"{widest}x\n".encode(), b"a\n"))


def test_surplus_source_lines_are_a_bad_row(tmp_path: Path):
    bad_row = only_bad_row(pairs_of(tmp_path, b"1\n2\n3\n4\n5\n", b"1\n2\n3\n"))
    assert bad_row.startswith("t.en:4: has no counterpart: t.de has 3 lines but t.en has 5")


def test_surplus_target_lines_are_a_bad_row(tmp_path: Path):
    bad_row = only_bad_row(pairs_of(tmp_path, b"1\n2\n3\n", b"1\n2\n3\n4\n5"))
    assert bad_row.startswith("t.de:4: has no counterpart: t.en has 3 lines but t.de has 5")


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1e", "\r"])
def test_only_a_newline_ends_a_line(tmp_path: Path, character: str):
    text = f"{character}one{character}two{character}."
    assert texts_of(pairs_of(tmp_path, f"{text}\nb\n".encode(), b"a\nb\n")) == [(text, "a"), ("b", "b")]
    assert texts_of(tsv_of(tmp_path, f"{text}\ta\nb\tb\n".encode())) == [(text, "a"), ("b", "b")]


def test_gz_name_without_gzip_data_is_an_error(tmp_path: Path):
    (tmp_path / "t.en.gz").write_bytes(b"plain text\n")
    (tmp_path / "t.de").write_bytes(b"a\n")
    with pytest.raises(DataError, match=r"^t\.en\.gz:1: is not gzip data"):
        load_rows(Pairs(tmp_path, src="t.en.gz", tgt="t.de"), skip_bad=True)


def test_gzip_data_without_gz_name_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match=r"^t\.en:1: contains gzip data"):
        load_rows(pairs_of(tmp_path, gzip.compress(b"one\n"), b"a\n"), skip_bad=True)


def gzipped_lines(count: int) -> bytes:
    return gzip.compress("".join(f"line {number * 7919 % 104729}\n" for number in range(count)).encode())


def test_truncated_gzip_is_an_error_with_its_line(tmp_path: Path):
    packed = gzipped_lines(20_000)
    (tmp_path / "t.en.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "t.de").write_bytes(b"a\n" * 20_000)
    with pytest.raises(DataError, match=r"^t\.en\.gz:\d+: the file is damaged from here on"):
        load_rows(Pairs(tmp_path, src="t.en.gz", tgt="t.de"), skip_bad=True)


@pytest.mark.parametrize("where", ["first block", "middle", "checksum"])
def test_corrupted_gzip_is_an_error_with_its_line(tmp_path: Path, where: str):
    packed = bytearray(gzipped_lines(20_000))
    start = {"first block": 10, "middle": len(packed) // 2, "checksum": len(packed) - 8}[where]
    packed[start : start + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "t.en.gz").write_bytes(packed)
    (tmp_path / "t.de").write_bytes(b"a\n" * 20_000)
    with pytest.raises(DataError, match=r"^t\.en\.gz:\d+: the file is damaged from here on"):
        load_rows(Pairs(tmp_path, src="t.en.gz", tgt="t.de"), skip_bad=True)


def test_missing_file_error_names_path_option_and_a_similar_file(tmp_path: Path):
    pairs_of(tmp_path, b"one\n", b"eins\n")
    source = Pairs(tmp_path, src="t.en", tgt="t.dee")
    with pytest.raises(DataError) as caught:
        load_rows(source, skip_bad=True)
    expected = f"{tmp_path / 't.dee'}: no such file; correct the option 'tgt' or data.folder (did you mean 't.de'?)"
    assert str(caught.value) == expected
    with pytest.raises(DataError, match="'tgt'"):
        source.files()


def test_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"'file'.*the folder .*nowhere does not exist"):
        list(Tsv(tmp_path, file="nowhere/t.tsv").rows())


def test_folder_instead_of_a_file_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match="is a folder, but 'file' must name a file"):
        list(Jsonl(tmp_path, file=".").rows())


# tsv


def test_tsv_reads_two_columns_without_quoting(tmp_path: Path):
    content = b'"one\teins\textra\nsay ""hi""\t"\n'
    assert texts_of(tsv_of(tmp_path, content)) == [('"one', "eins"), ('say ""hi""', '"')]


def test_tsv_columns_and_header_are_options(tmp_path: Path):
    source = tsv_of(tmp_path, b"id\tde\ten\n1\teins\tone\n", src=2, tgt=1, header=True)
    assert list(source.rows()) == [Pair("one", "eins", "t.tsv:2")]
    assert source.files() == {"file": tmp_path / "t.tsv"}


def test_tsv_line_with_too_few_columns_is_a_bad_row(tmp_path: Path):
    bad_row = only_bad_row(tsv_of(tmp_path, b"one\teins\ntwo zwei\n"))
    assert bad_row.startswith("t.tsv:2: too few columns: expected at least 2, got 1")


def test_tsv_blank_line_is_a_bad_row(tmp_path: Path):
    assert only_bad_row(tsv_of(tmp_path, b"one\teins\n\ntwo\tzwei\n")).startswith("t.tsv:2: too few columns")


def test_tsv_byte_order_mark_in_the_header_is_a_bad_row(tmp_path: Path):
    bad_row = only_bad_row(tsv_of(tmp_path, b"\xef\xbb\xbfsrc\ttgt\none\teins\n", header=True))
    assert bad_row.startswith("t.tsv:1: the file starts with a byte order mark")


def test_tsv_negative_column_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match="tgt: column numbers start at 0, got -1"):
        Tsv(tmp_path, file="t.tsv", tgt=-1)


# jsonl


def test_jsonl_objects_may_be_flat_or_nested(tmp_path: Path):
    flat = jsonl_of(tmp_path, '{"en": "one", "de": "eins \\ud83d\\ude00", "id": 3}', src="en", tgt="de")
    assert texts_of(flat) == [("one", "eins 😀")]
    nested = jsonl_of(tmp_path, '{"translation": {"en": "one", "de": "eins"}}', src="de", tgt="en")
    assert list(nested.rows()) == [Pair("eins", "one", "t.jsonl:1")]


def test_jsonl_key_may_be_called_translation(tmp_path: Path):
    line = '{"text": "one", "translation": "eins"}'
    assert texts_of(jsonl_of(tmp_path, line, src="text", tgt="translation")) == [("one", "eins")]


BAD_JSON_LINES = {
    "bad JSON": ('{"src": "one"', "is not JSON: Expecting ',' delimiter at column 14"),
    "blank line": ("", "is not JSON"),
    "not an object": ('["one", "eins"]', "expected a JSON object, got list"),
    "missing key": ('{"src": "one", "de": "eins"}', "has no key 'tgt'; its keys are 'src', 'de'"),
    "missing key in translation": ('{"translation": {"en": "one"}}', "has no key 'src'; its keys are 'en'"),
    "empty object": ("{}", "has no key 'src'; the object is empty"),
    "number": ('{"src": "one", "tgt": 1}', "the value of 'tgt' must be a string, got int"),
    "null": ('{"src": null, "tgt": ""}', "the value of 'src' must be a string, got NoneType"),
    "lone surrogate": ('{"src": "a\\ud800", "tgt": ""}', "'src' contains an unpaired surrogate, '\\ud800'"),
    "newline": ('{"src": "", "tgt": "a\\nb"}', "'tgt' contains a newline at offset 1"),
    "NUL": ('{"src": "", "tgt": "a\\u0000"}', "'tgt' contains a NUL character at offset 1"),
    "deep": ("[" * 90_000, "is JSON nested too deeply"),
    "huge number": ('{"src": ' + "1" * 5_000 + "}", "integer string conversion"),
}


@pytest.mark.parametrize(("line", "reason"), BAD_JSON_LINES.values(), ids=BAD_JSON_LINES.keys())
def test_unusable_json_line_is_a_bad_row(tmp_path: Path, line: str, reason: str):
    good = '{"src": "one", "tgt": "eins"}'
    source = jsonl_of(tmp_path, good, line, good)
    bad_row = only_bad_row(source)
    assert bad_row.startswith("t.jsonl:2: ")
    assert reason in bad_row
    bad_row.encode()
    assert load_rows(source, skip_bad=True).rows == [
        Pair("one", "eins", "t.jsonl:1"),
        Pair("one", "eins", "t.jsonl:3"),
    ]


# load


def test_load_error_lists_ten_faults_and_the_total(tmp_path: Path):
    source = pairs_of(tmp_path, b"\xff\n" * 12 + b"good\n", b"a\n" * 13)
    with pytest.raises(DataError) as caught:
        load_rows(source, skip_bad=False)
    lines = str(caught.value).split("\n")
    assert [line.split(": ")[0] for line in lines[:10]] == [f"t.en:{number}" for number in range(1, 11)]
    assert lines[10] == "... and 2 more"
    assert lines[11].startswith("bad rows: 12 of 13; correct them, or set `data.skip_bad = true`")


def test_skip_bad_counts_a_pair_once_even_if_both_sides_are_bad(tmp_path: Path):
    source = pairs_of(tmp_path, b"\xff\n\0\ngood\n", b"\xff\nfine\ngut\n")
    loaded = load_rows(source, skip_bad=True)
    assert loaded.bad_rows == 2
    assert loaded.rows == [Pair("good", "gut", "t.en:3")]
    assert "also t.de:1: byte 0xff" in bad_rows_of(source)[0].reason


def test_source_options_are_annotated_keyword_parameters():
    for kind, source in SOURCES.items():
        parameters = inspect.signature(source).parameters.values()
        options = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        assert all(p.annotation is not inspect.Parameter.empty for p in options), kind
        assert [p.name for p in parameters if p not in options] in ([], ["folder"], ["config_key"]), kind


# properties

LINES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"))
    .map(lambda text: text.removeprefix("\ufeff").rstrip("\r"))
    .filter(lambda text: not text.startswith("\ufeff")),
    max_size=8,
)


def write_and_read(lines: Sequence[str], name: str) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        content = "".join(f"{line}\n" for line in lines).encode()
        path = Path(folder, name)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return texts_of(Pairs(Path(folder), src=name, tgt=name))


@settings(max_examples=60, deadline=None)
@given(lines=LINES, name=st.sampled_from(["text.en", "text.en.gz"]))
def test_any_lines_round_trip(lines: list[str], name: str):
    assert write_and_read(lines, name) == [(line, line) for line in lines]


@settings(max_examples=60, deadline=None)
@given(lines=LINES)
def test_any_lines_round_trip_through_json(lines: list[str]):
    with tempfile.TemporaryDirectory() as folder:
        rows = [json.dumps({"src": line, "tgt": line}, ensure_ascii=len(line) % 2 == 0) for line in lines]
        assert texts_of(jsonl_of(Path(folder), *rows)) == [(line, line) for line in lines]


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=200), kind=st.sampled_from(["pairs", "tsv", "jsonl"]))
def test_any_bytes_give_rows_or_a_data_error(content: bytes, kind: str):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.jsonl").write_bytes(content)
        sources = {
            "pairs": lambda: pairs_of(folder, content, content),
            "tsv": lambda: tsv_of(folder, content),
            "jsonl": lambda: Jsonl(folder, file="t.jsonl"),
        }
        try:
            rows = list(sources[kind]().rows())
        except DataError:
            return
        assert len(rows) == content.count(b"\n") + (not content.endswith(b"\n") and content != b"")


@pytest.mark.skipif("SACCADE_DATA" not in os.environ, reason="SACCADE_DATA does not name the data folder")
def test_multi30k_has_no_bad_rows():
    folder = Path(os.environ["SACCADE_DATA"])
    folder = folder / "multi30k" if (folder / "multi30k").is_dir() else folder
    loaded = load_rows(Pairs(folder, src="train.en.gz", tgt="train.de.gz"), skip_bad=True)
    assert len(loaded.rows) == 29_000
    assert loaded.bad_rows == 0


@pytest.mark.parametrize(("sources", "targets"), [(5, 3), (3, 5)])
def test_every_surplus_line_is_counted(tmp_path: Path, sources: int, targets: int) -> None:
    (tmp_path / "a").write_text("x\n" * sources, "utf-8")
    (tmp_path / "b").write_text("y\n" * targets, "utf-8")
    loaded = load_rows(Pairs(tmp_path, src="a", tgt="b"), skip_bad=True)
    assert (len(loaded.rows), loaded.bad_rows) == (3, 2)
