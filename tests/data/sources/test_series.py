"""The series source: good values are read exactly; bad rows name the series, row and column."""

import gzip
import io
import os
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saccade.data.sources import SOURCES, BadRow, Pair, Series, load_rows
from saccade.data.sources.numbers import MAX_ARRAY_BYTES
from saccade.data.sources.series import LabeledSeries, groups_in_several_splits
from saccade.errors import DataError

X = np.arange(15, dtype=np.float32).reshape(5, 3)
Y = np.array([1, 1, -1, 2, 2], dtype=np.int8)


def npz(folder: Path, arrays: dict[str, Any], **options: Any) -> LabeledSeries:
    np.savez(folder / "t.npz", **arrays)
    return LabeledSeries(folder, file="t.npz", **options)


def source_of(folder: Path, content: str | bytes, name: str = "t.csv", **options: Any) -> LabeledSeries:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return LabeledSeries(folder, file=name, **options)


def frames_of(source: LabeledSeries) -> list[Series]:
    rows = load_rows(source, skip_bad=False).rows
    return [row for row in rows if isinstance(row, Series)]


def only_bad_row(source: LabeledSeries) -> str:
    (bad_row,) = (row for row in source.rows() if isinstance(row, BadRow))
    return str(bad_row)


# npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_as_frames(tmp_path: Path, save: Any):
    save(tmp_path / "t.npz", u01_0_x=X, u01_0_y=Y, u02_1_x=np.asfortranarray(X[:2]), u02_1_y=Y[1:3])
    first, second = frames_of(LabeledSeries(tmp_path, file="t.npz"))
    assert np.array_equal(first.source, X)
    assert (first.target, first.location, first.group) == (("1", "1", "", "2", "2"), "t.npz:u01_0", "u01")
    assert (second.target, second.location, second.group) == (("1", ""), "t.npz:u02_1", "u02")
    assert second.source.flags.c_contiguous
    assert np.array_equal(second.source, X[:2])


@pytest.mark.parametrize("dtype", ["f2", "f8", ">f4", "i1", "u8", "?", "g"])
def test_all_real_data_types_become_float32(tmp_path: Path, dtype: str):
    numbers = (X % 2).astype(dtype)
    (row,) = frames_of(npz(tmp_path, {"a_x": numbers, "a_y": Y}))
    assert row.source.dtype == np.float32
    assert np.array_equal(row.source, X % 2)


@pytest.mark.parametrize("order", ["<", ">"])
def test_labels_can_be_strings(tmp_path: Path, order: str):
    labels = np.array(["walk", "stand up", "", "-1", "läuft"]).astype(f"{order}U8")
    (row,) = frames_of(npz(tmp_path, {"a_x": X, "a_y": labels}))
    assert row.target == ("walk", "stand up", "", "", "läuft")


def test_scalar_label_is_for_the_whole_series(tmp_path: Path):
    arrays = {"a_x": X, "a_y": np.array(3), "b_x": X, "b_y": np.array("run"), "c_x": X, "c_y": np.array(-1)}
    assert [row.target for row in frames_of(npz(tmp_path, arrays))] == ["3", "run"]
    rows = frames_of(npz(tmp_path, arrays, window=4))
    assert [(row.target, len(row.source)) for row in rows] == [("3", 4), ("3", 1), ("run", 4), ("run", 1)]


def test_unlabeled_option_sets_the_label_for_none(tmp_path: Path):
    (row,) = frames_of(npz(tmp_path, {"a_x": X, "a_y": Y}, unlabeled="2"))
    assert row.target == ("1", "1", "-1", "", "")


def test_npz_without_arrays_has_no_rows(tmp_path: Path):
    assert frames_of(npz(tmp_path, {})) == []


def test_groups_select_series_by_the_start_of_their_name(tmp_path: Path):
    arrays = {
        f"{name}_{half}": both for name in ("u1_0", "u1_1", "u2_0", "alone") for half, both in (("x", X), ("y", Y))
    }
    assert [row.group for row in frames_of(npz(tmp_path, arrays))] == ["u1", "u1", "u2", "alone"]
    assert [row.location for row in frames_of(npz(tmp_path, arrays, groups=("u2", "u1")))] == [
        "t.npz:u1_0",
        "t.npz:u1_1",
        "t.npz:u2_0",
    ]
    expected = r"^t\.npz: has no group 'u3'; correct the option 'groups' \(known: u1, u2, alone\)$"
    with pytest.raises(DataError, match=expected):
        list(npz(tmp_path, arrays, groups=("u1", "u3")).rows())


def test_faults_in_unselected_groups_are_not_reported(tmp_path: Path):
    arrays = {"u1_x": X, "u1_y": Y, "u2_x": X[:, 0], "u2_y": Y, "rate": np.array(50)}
    assert len(frames_of(npz(tmp_path, arrays, groups=("u1",)))) == 1


# windows


def test_last_window_may_be_shorter(tmp_path: Path):
    rows = frames_of(npz(tmp_path, {"u1_a_x": X, "u1_a_y": Y}, window=2))
    assert [row.location for row in rows] == ["t.npz:u1_a:0", "t.npz:u1_a:2", "t.npz:u1_a:4"]
    assert [row.target for row in rows] == [("1", "1"), ("", "2"), ("2",)]
    assert np.array_equal(np.concatenate([row.source for row in rows]), X)
    assert {row.group for row in rows} == {"u1"}


WHOLE = {
    "most frequent": ([1, 2, 2], ["2"]),
    "tie: the first": ([2, 1, 3, 1, 2], ["2"]),
    "tie: a real label": ([-1, -1, 1, 1], ["1"]),
    "mostly unlabeled": ([-1, 1, -1], []),
    "one frame": ([7], ["7"]),
    "one frame, unlabeled": ([-1], []),
}


@pytest.mark.parametrize(("labels", "expected"), WHOLE.values(), ids=WHOLE.keys())
def test_whole_option_uses_the_most_frequent_label(tmp_path: Path, labels: list[int], expected: list[str]):
    source = npz(tmp_path, {"a_x": np.ones((len(labels), 2)), "a_y": np.array(labels)}, whole=True)
    assert [row.target for row in frames_of(source)] == expected


def test_whole_option_labels_each_window(tmp_path: Path):
    labels = np.array([1, 1, 2, -1, -1, 1, 2])
    rows = frames_of(npz(tmp_path, {"a_x": np.ones((7, 1)), "a_y": labels}, whole=True, window=3))
    assert [(row.location, row.target) for row in rows] == [("t.npz:a:0", "1"), ("t.npz:a:6", "2")]


# bad rows of an npz: one series is bad, the other is read


def with_bad(numbers: Any, row: int, column: int, kind: str = "f4") -> np.ndarray:
    changed = X.astype(kind)
    changed[row, column] = numbers
    return changed


BAD = {
    "nan": ({"b_x": with_bad(np.nan, 4, 2), "b_y": Y}, "row 4, column 2 is NaN; give a finite value"),
    "infinity": ({"b_x": with_bad(-np.inf, 1, 0), "b_y": Y}, "row 1, column 0 is infinite"),
    "overflow": ({"b_x": with_bad(1e300, 3, 1, "f8"), "b_y": Y}, "row 3, column 1 is 1e+300, too large for float32"),
    "no y": ({"b_x": X}, "has b_x but no b_y"),
    "no x": ({"b_y": Y}, "has b_y but no b_x"),
    "shorter y": ({"b_x": X, "b_y": Y[:4]}, "b_y has 4 labels, but b_x has 5 frames"),
    "y in a column": ({"b_x": X, "b_y": Y[:, None]}, "b_y has shape (5, 1), but must be [frames]"),
    "float y": ({"b_x": X, "b_y": Y.astype(float)}, "b_y has data type float64, but labels are integers or strings"),
    "bytes y": ({"b_x": X, "b_y": Y.astype("S2")}, "b_y has data type |S2, but labels"),
    "1-D x": ({"b_x": X[:, 0], "b_y": Y}, "b_x has shape (5,), but must be [frames, values per frame]; x[:, None]"),
    "3-D x": ({"b_x": X[:, :, None], "b_y": Y}, "b_x has shape (5, 3, 1)"),
    "0-D x": ({"b_x": X[0, 0], "b_y": Y}, "b_x has shape ()"),
    "no frames": ({"b_x": X[:0], "b_y": Y[:0]}, "b_x has 0 frames of 3 values"),
    "no width": ({"b_x": X[:, :0], "b_y": Y}, "b_x has 5 frames of 0 values"),
    "other width": ({"b_x": X[:, :2], "b_y": Y}, "b_x has 2 values per frame, but a_x has 3"),
    "complex": ({"b_x": X.astype("c8"), "b_y": Y}, "b_x has data type complex64, not real numbers"),
    "strings": ({"b_x": X.astype("U4"), "b_y": Y}, "b_x has data type <U4, not real numbers"),
    "dates": ({"b_x": X.astype("M8[s]"), "b_y": Y}, "b_x has data type datetime64[s], not real numbers"),
    "records": ({"b_x": np.zeros((5, 3), dtype=[("p", "f4")]), "b_y": Y}, "not real numbers"),
    "objects": ({"b_x": X.astype(object), "b_y": Y}, "b_x.npy contains Python objects, which could execute code"),
    "object labels": ({"b_x": X, "b_y": Y.astype(object)}, "b_y.npy contains Python objects"),
    "newline": ({"b_x": X, "b_y": np.array(["1\n2"] * 5)}, "b_y has the label '1\\n2', which contains a newline"),
    "NUL": ({"b_x": X, "b_y": np.array(["1\x002"] * 5)}, "which contains a NUL character"),
    "surrogate": ({"b_x": X, "b_y": np.array(["\ud800"] * 5)}, "b_y has a label that is not valid Unicode"),
    "beyond Unicode": ({"b_x": X, "b_y": np.full(5, 0x110000, "<u4").view("<U1")}, "that is not valid Unicode"),
    "beyond, swapped": ({"b_x": X, "b_y": np.full(5, 0x110000, ">u4").view(">U1")}, "that is not valid Unicode"),
    "stray": ({"b": X}, "is neither NAME_x nor NAME_y"),
}


@pytest.mark.parametrize(("arrays", "reason"), BAD.values(), ids=BAD.keys())
def test_unusable_series_is_a_bad_row(tmp_path: Path, arrays: dict[str, Any], reason: str):
    source = npz(tmp_path, {"a_x": X, "a_y": Y, **arrays})
    bad_row = only_bad_row(source)
    assert bad_row.startswith("t.npz:b: ")
    assert reason in bad_row
    assert [row.location for row in load_rows(source, skip_bad=True).rows] == ["t.npz:a"]


def test_stray_array_with_the_name_of_a_good_series_is_a_bad_row(tmp_path: Path):
    source = npz(tmp_path, {"a": X, "a_x": X, "a_y": Y})
    assert only_bad_row(source).startswith("t.npz:a: is neither")
    assert len(load_rows(source, skip_bad=True).rows) == 1


def npy(shape: tuple[int, ...], kind: str = "<f4", body: bytes = b"") -> bytes:
    """An .npy file with any header and body, whether or not they match."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue() + body


def zipped(folder: Path, members: dict[str, bytes]) -> LabeledSeries:
    with zipfile.ZipFile(folder / "t.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return LabeledSeries(folder, file="t.npz")


@pytest.mark.parametrize("shape", [(10**12, 6), (2**62, 2**62), (MAX_ARRAY_BYTES // 4 + 1, 1)])
def test_array_with_a_huge_declared_size_is_rejected_before_allocation(tmp_path: Path, shape: Any):
    source = zipped(tmp_path, {"a_x.npy": npy(shape), "a_y.npy": npy((3,), "|i1", b"123")})
    with pytest.raises(DataError, match=r"^t\.npz:a: a_x\.npy declares [\d,]+ bytes, more than 2,147,483,648"):
        list(source.rows())


HEADERS = {
    "shorter than declared": npy((5, 3), "<f4", b"1234"),
    "longer than declared": npy((1, 1), "<f4", b"12345678"),
    "negative shape": npy((-5, -3), "<f4", bytes(60)),
    "item size 0": npy((10**15, 1), "|V0"),
    "empty": b"",
    "not an array": b"hello",
    "only magic": b"\x93NUMPY",
    "long and wrong": b"\x93NUMPY\x01\x00\x88\x13'" + b"a" * 4998 + b"'",
    "another version": b"\x93NUMPY\x03\x00" + bytes(100),
    "not Python": b"\x93NUMPY\x01\x00\x0a\x00((((((((((",
    "unhashable": b"\x93NUMPY\x01\x00\x07\x00{[1]:2}",
    "keys of two types": b"\x93NUMPY\x01\x00\x0b\x00{1:1,'a':2}",
    "unfinished string": b"\x93NUMPY\x01\x00\x04\x00'''a",
    "nested": b"\x93NUMPY\x01\x00\x10\x27" + b"[" * 10_000,
    "unknown data type": npy((5, 3), "<f4").replace(b"'<f4'", b"'q!!'"),
}


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS.keys())
def test_damaged_header_is_a_bad_row(tmp_path: Path, content: bytes):
    labels = npy((5,), "|i1", b"12345")
    good = {"a_x.npy": npy((5, 3), "<f4", bytes(60)), "a_y.npy": labels}
    source = zipped(tmp_path, {"b_x.npy": content, "b_y.npy": labels, **good})
    bad_row = only_bad_row(source)
    assert bad_row.startswith("t.npz:b: b_x.npy is ")
    assert "again" in bad_row
    assert len(bad_row) < 250
    assert len(load_rows(source, skip_bad=True).rows) == 1


def test_only_version_1_0_of_the_npy_format_is_read(tmp_path: Path):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, X, version=(2, 0))
    source = zipped(tmp_path, {"a_x.npy": stream.getvalue(), "a_y.npy": npy((5,), "|i1", bytes(5))})
    assert "not version 1.0 of the .npy format" in only_bad_row(source)


def test_array_saved_by_python_2_is_read_without_a_warning(tmp_path: Path):
    old = npy((5, 3), "<f4", X.tobytes()).replace(b"(5, 3), }", b"(5L,3), }")
    (row,) = frames_of(zipped(tmp_path, {"a_x.npy": old, "a_y.npy": npy((5,), "|i1", bytes(5))}))
    assert np.array_equal(row.source, X)


def test_damaged_array_is_detected_by_its_checksum(tmp_path: Path):
    npz(tmp_path, {"a_x": X, "a_y": Y, "b_x": X + 1, "b_y": Y})
    content = (tmp_path / "t.npz").read_bytes()
    at = content.index(X.tobytes())
    (tmp_path / "t.npz").write_bytes(content[: at + 5] + b"\xff" + content[at + 6 :])
    source = LabeledSeries(tmp_path, file="t.npz")
    assert only_bad_row(source).startswith("t.npz:a: a_x.npy is ")
    assert "damaged (Bad CRC-32" in only_bad_row(source)
    assert [row.location for row in load_rows(source, skip_bad=True).rows] == ["t.npz:b"]


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"not a zip", gzip.compress(b"1 2 a\n", mtime=0), npy((5, 3), "<f4", bytes(60))]
)
def test_other_file_formats_are_an_error(tmp_path: Path, content: bytes):
    with pytest.raises(
        DataError, match=r"^t\.npz: is not an .npz file, or is damaged \(File is not a zip file\); download or save"
    ):
        list(source_of(tmp_path, content, "t.npz").rows())


def test_truncated_npz_is_an_error(tmp_path: Path):
    npz(tmp_path, {"a_x": X, "a_y": Y})
    content = (tmp_path / "t.npz").read_bytes()
    for length in range(0, len(content), 7):
        with pytest.raises(DataError, match=r"^t\.npz: is not an .npz file, or is damaged"):
            list(source_of(tmp_path, content[:length], "t.npz").rows())


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_array_is_an_error(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("a_x.npy", npy((1, 1), "<f4", bytes(4)))
        archive.writestr("a_x.npy", npy((1, 1), "<f4", bytes(4)))
    with pytest.raises(DataError, match=r"^t\.npz: 'a_x' is in the file twice"):
        list(LabeledSeries(tmp_path, file="t.npz").rows())


def test_unprintable_array_name_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match=r"'a\\x1b\[2J_x' is not a printable name"):
        list(zipped(tmp_path, {"a\x1b[2J_x.npy": b""}).rows())


def test_missing_file_names_its_option_and_a_similar_file(tmp_path: Path):
    npz(tmp_path, {})
    with pytest.raises(DataError, match=r"correct the option 'file' or data\.folder \(did you mean 't\.npz'\?\)"):
        list(LabeledSeries(tmp_path, file="tt.npz").rows())


# text

LINES = "1,2.5,walk\n-3e2, 4 ,-1\n\n\n5\t6\trun\n+7  .5 run\n"


@pytest.mark.parametrize("name", ["t.csv", "t.txt.gz"])
def test_text_is_read(tmp_path: Path, name: str):
    first, second = frames_of(source_of(tmp_path, gzip.compress(LINES.encode()) if "gz" in name else LINES, name))
    assert first.source.tolist() == [[1, 2.5], [-300, 4]]
    assert (first.target, first.location, first.group) == (("walk", ""), f"{name}:series1", "")
    assert second.source.tolist() == [[5, 6], [7, 0.5]]
    assert second.source.dtype == np.float32
    assert (second.target, second.location) == (("run", "run"), f"{name}:series2")


def test_text_can_be_cut_into_windows(tmp_path: Path):
    rows = frames_of(source_of(tmp_path, LINES, window=1, whole=True))
    assert [(row.location, row.target) for row in rows] == [
        ("t.csv:series1:0", "walk"),
        ("t.csv:series2:0", "run"),
        ("t.csv:series2:1", "run"),
    ]


def test_text_without_final_newline_is_accepted(tmp_path: Path):
    (row,) = frames_of(source_of(tmp_path, "1 a"))
    assert (row.source.tolist(), row.target) == ([[1]], ("a",))


@pytest.mark.parametrize("content", ["", "\n\n", " \n\t\n"])
def test_text_without_frames_has_no_rows(tmp_path: Path, content: str):
    assert frames_of(source_of(tmp_path, content)) == []


def test_text_has_no_groups(tmp_path: Path):
    with pytest.raises(DataError, match=r"^t\.csv: text has no groups; remove the option 'groups', or save"):
        list(source_of(tmp_path, "1 a\n", groups=("u1",)).rows())


BAD_TEXT = {
    "ragged": (b"1,2,a\n1,2,3,a\n", "t.csv:4: has 3 numbers, expected 2"),
    "label missing": (
        b"1,2,a\n1,2\n",
        "t.csv:4: has 1 numbers, expected 2; check that no number and no label is missing",
    ),
    "other width": (b"1,2,3,a\n", "t.csv:3: has 3 numbers, expected 2"),
    "only a label": (b"walk\n", "t.csv:3: has no label; write numbers and then a label"),
    "empty label": (b"1,2,\n", "t.csv:3: has no label"),
    "missing number": (b"1,,a\n", "t.csv:3: column 1 is '', which is not a number"),
    "missing number, tabs": (b"1\t\ta\n", "t.csv:3: column 1 is '', which is not a number"),
    "header": (
        b"ax,ay,label\n1,2,a\n",
        "t.csv:3: column 0 is 'ax', which is not a number; if this line is a header, remove it",
    ),
    "underscore": (b"1_0,2,a\n", "column 0 is '1_0', which is not a number"),
    "decimal comma": (b"1;5,2,a\n", "column 0 is '1;5', which is not a number"),
    "nan": (b"1,2,a\n1,nan,a\n", "t.csv:4: column 1 is NaN"),
    "infinity": (b"1,2,a\n1,2,a\n-inf,2,a\n", "t.csv:5: column 0 is infinite"),
    "overflow": (b"1,2,a\n1,1e39,a\n", "t.csv:4: column 1 is 1e+39, too large for float32"),
    "overflow of float64": (b"1,1e999,a\n", "t.csv:3: column 1 is infinite"),
    "crlf": (b"1,2,a\r\n1,2,a\r\n", "t.csv:3: the line ends in CRLF"),
    "latin-1": (b"1,2,a\n1,2,\xe9\n", "t.csv:4: byte 0xe9"),
    "nul": (b"1,2,\0\n", "t.csv:3: NUL byte"),
}


@pytest.mark.parametrize(("lines", "reason"), BAD_TEXT.values(), ids=BAD_TEXT.keys())
def test_unusable_line_of_text_is_a_bad_row(tmp_path: Path, lines: bytes, reason: str):
    source = source_of(tmp_path, b"1,2,a\n\n" + lines + b"\n3,4,b\n")
    assert reason in only_bad_row(source)
    assert [row.location for row in load_rows(source, skip_bad=True).rows] == ["t.csv:series1", "t.csv:series3"]


def test_byte_order_mark_is_a_bad_row(tmp_path: Path):
    assert only_bad_row(source_of(tmp_path, b"\xef\xbb\xbf1,2,a\n")).startswith(
        "t.csv:1: the file starts with a byte order mark"
    )


def test_truncated_gzip_is_an_error_with_its_line(tmp_path: Path):
    packed = gzip.compress("".join(f"{n * 7919 % 9973},a\n" for n in range(5000)).encode())
    with pytest.raises(DataError, match=r"^t\.gz:\d+: the file is damaged from here on"):
        list(source_of(tmp_path, packed[: len(packed) // 2], "t.gz").rows())


# groups in several splits


def series(group: str) -> Series:
    return Series(X, "a", "t.npz:x", group)


def test_groups_in_several_splits_are_reported():
    splits = {
        "train": [series("u02"), series("u01"), series("u01"), series("")],
        "dev": [series("u03"), series("u02"), series("")],
        "test": [series("u01"), series("u02"), Pair("u03", "u03", "t:1")],
    }
    assert groups_in_several_splits(splits) == [
        "group u01 is in data.train and data.test",
        "group u02 is in data.train, data.dev and data.test",
    ]
    assert groups_in_several_splits({"train": [series("u01")], "test": [series("u02")]}) == []
    assert groups_in_several_splits({}) == []


def test_source_is_registered():
    assert SOURCES["series"] is LabeledSeries


# properties


def packed() -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, a_x=X, a_y=Y, b_x=X + 1, b_y=np.array("walk"))
    return stream.getvalue()


PACKED = packed()


def every_row(content: bytes, name: str) -> list[Series | BadRow]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return list(source_of(Path(folder), content, name).rows())
        except DataError:
            return []


def check_rows(rows: list[Series | BadRow]) -> None:
    for row in rows:
        if isinstance(row, Series):
            assert row.source.dtype == np.float32
            assert np.isfinite(row.source).all()
            assert row.source.size > 0
            assert isinstance(row.target, str) or len(row.target) == len(row.source)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=150) | st.text("1.e-,\t na\n", max_size=80).map(str.encode))
def test_any_bytes_of_text_give_valid_rows_or_an_error(content: bytes):
    check_rows(every_row(content, "t.csv"))


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(PACKED) - 1), put=st.binary(min_size=1, max_size=6))
def test_any_damage_to_an_npz_gives_valid_rows_or_an_error(at: int, put: bytes):
    check_rows(every_row(PACKED[:at] + put + PACKED[at + len(put) :], "t.npz"))


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=150))
@example(content=b"PK\x05\x06" + bytes(18))
def test_any_bytes_of_an_npz_give_valid_rows_or_an_error(content: bytes):
    check_rows(every_row(content, "t.npz"))


@settings(max_examples=300, deadline=None)
@given(header=st.text("{}()[]'\"descr: shape,fortran_orderTrueFalse<f4U8O|V0123456789-L\\", max_size=90))
@example(header="{'descr': [], 'fortran_order': False, 'shape': (1, 1)}")
@example(header="{'descr': (), 'fortran_order': False, 'shape': (1, 1)}")
@example(header="{'descr': ('<f4', (1,)), 'fortran_order': False, 'shape': (1, 1)}")
@example(header="{'descr': '<f4', 'fortran_order': False, 'shape': (True, 1)}")
@example(header="{'descr': '|O', 'fortran_order': False, 'shape': (1, 1)}")
def test_any_array_header_gives_valid_rows_or_an_error(header: str):
    head = header.encode()
    array = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(4)
    with tempfile.TemporaryDirectory() as folder:
        source = zipped(Path(folder), {"a_x.npy": array, "a_y.npy": npy((1,), "|i1", b"1")})
        try:
            rows = list(source.rows())
        except DataError:
            return
    check_rows(rows)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), max_size=4),
    window=st.integers(0, 4),
    width=st.integers(1, 3),
)
def test_text_and_npz_give_the_same_rows(lengths: list[int], window: int, width: int):
    random = np.random.default_rng([*lengths, window, width])
    numbers = [random.normal(size=(length, width)).astype(np.float32) for length in lengths]
    labels = [random.integers(-1, 3, length) for length in lengths]
    lines = [
        "".join(
            ",".join(map(repr, [*frame.tolist(), label])) + "\n" for frame, label in zip(x, y.tolist(), strict=True)
        )
        for x, y in zip(numbers, labels, strict=True)
    ]
    arrays = {f"s{i}_{half}": both[i] for i in range(len(lengths)) for half, both in (("x", numbers), ("y", labels))}
    with tempfile.TemporaryDirectory() as folder:
        read = frames_of(source_of(Path(folder), "\n".join(lines), window=window))
        loaded = frames_of(npz(Path(folder), arrays, window=window))
    assert [row.target for row in read] == [row.target for row in loaded]
    assert all(np.array_equal(a.source, b.source) for a, b in zip(read, loaded, strict=True))
    assert sum(len(row.source) for row in read) == sum(lengths)


@pytest.mark.skipif("SACCADE_DATA" not in os.environ, reason="SACCADE_DATA does not name the data folder")
def test_activity_data_has_twenty_groups():
    folder, file = Path(os.environ["SACCADE_DATA"]), "hapt_users01-20.npz"
    rows = frames_of(LabeledSeries(folder, file=file))
    assert len({row.group for row in rows}) == 20
    counts = Counter(label for row in rows for label in row.target)
    assert set(counts) == {"", *map(str, range(1, 13))}
    windows = frames_of(LabeledSeries(folder, file=file, groups=("u01",), window=128, whole=True))
    assert all(len(row.source) == 128 for row in windows[:-1])
    assert windows[0].location.startswith(f"{file}:u01_0:")
