"""The columns source: CoNLL-2003, CoNLL-U and two-column TSV, and the bad rows of each."""

import gzip
import os
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.sources import SOURCES, BadRow, Tagged, load_rows
from saccade.data.sources.columns import Columns
from saccade.errors import DataError


def columns(folder: Path, content: str | bytes, name: str = "t.tsv", **options: Any) -> Columns:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return Columns(folder, file=name, **options)


def rows_of(folder: Path, content: str | bytes, **options: Any) -> list[Tagged | BadRow]:
    return list(columns(folder, content, **options).rows())


def only_bad_row(folder: Path, content: str | bytes, **options: Any) -> str:
    (bad_row,) = (row for row in rows_of(folder, content, **options) if isinstance(row, BadRow))
    return str(bad_row)


# the three formats

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
# # B-NP O
1 CD I-NP O

-DOCSTART- -X- -X- O

Peter NNP B-NP B-PER
"""


def test_conll_2003_is_read(tmp_path: Path):
    assert rows_of(tmp_path, CONLL_2003, separator="space") == [
        Tagged(("EU", "#", "1"), ("B-ORG", "O", "O"), "t.tsv:3"),
        Tagged(("Peter",), ("B-PER",), "t.tsv:9"),
    ]
    assert rows_of(tmp_path, CONLL_2003, separator="space", label=1)[1].target == ("NNP",)  # type: ignore[union-attr]


def token(number: str, word: str, tag: str) -> str:
    return "\t".join([number, word, word, tag, "_", "_", "0", "root", "_", "_"]) + "\n"


CONLL_U = (
    "# newdoc id = x\n# text = Vámonos #\n"
    + token("1-2", "Vámonos", "_")
    + token("1", "Vamos", "VERB")
    + token("2", "nos", "PRON")
    + token("2.1", "ellipsis", "NOUN")
    + token("3", "#", "SYM")
    + "\n# sent_id = 2\n"
    + token("1", "3-4", "NUM")
)


def test_conll_u_comments_ranges_and_empty_nodes_are_skipped(tmp_path: Path):
    assert rows_of(tmp_path, CONLL_U, word=1, label=3) == [
        Tagged(("Vamos", "nos", "#"), ("VERB", "PRON", "SYM"), "t.tsv:4"),
        Tagged(("3-4",), ("NUM",), "t.tsv:10"),
    ]
    assert rows_of(tmp_path, CONLL_U, word=-9, label=-7) == rows_of(tmp_path, CONLL_U, word=1, label=3)


def test_ranges_are_words_if_the_file_is_not_conll_u(tmp_path: Path):
    (row,) = rows_of(tmp_path, "3-4\tNUM\n5.1\tNUM\n")
    assert isinstance(row, Tagged)
    assert row.source == ("3-4", "5.1")
    (row,) = rows_of(tmp_path, token("3-4", "x", "y"), word=0, label=3)
    assert row == Tagged(("3-4",), ("y",), "t.tsv:1")
    (row,) = rows_of(tmp_path, "3-4\tx\ty\n", word=1)
    assert row == Tagged(("x",), ("y",), "t.tsv:1")


def test_two_tab_separated_columns_are_read(tmp_path: Path):
    assert rows_of(tmp_path, "a b\tX\nc\t\n\nd\tY") == [
        Tagged(("a b", "c"), ("X", ""), "t.tsv:1"),
        Tagged(("d",), ("Y",), "t.tsv:4"),
    ]


def test_runs_of_spaces_are_one_separator(tmp_path: Path):
    assert rows_of(tmp_path, " a   X \nb\u00a0c X\n", separator="space") == [
        Tagged(("a", "b\u00a0c"), ("X", "X"), "t.tsv:1"),
    ]


def test_gzip_is_read(tmp_path: Path):
    (row,) = rows_of(tmp_path, gzip.compress(b"a\tX\n"), name="t.tsv.gz")
    assert row.location == "t.tsv.gz:1"


@pytest.mark.parametrize("content", ["", "\n", "\n\n  \n\t\n", "# only\n# comments\n", "-DOCSTART-\n\n"])
def test_file_without_sentences_has_no_rows(tmp_path: Path, content: str):
    assert rows_of(tmp_path, content) == []


def test_extra_blank_lines_and_docstart_lines_are_skipped(tmp_path: Path):
    rows = rows_of(tmp_path, "\n\n-DOCSTART-\na\tX\n\n \n\t\nb\tY\n\n")
    assert [row.location for row in rows] == ["t.tsv:4", "t.tsv:8"]


# "#": a comment or a word


def test_hash_line_is_a_word_if_it_has_the_columns_of_its_sentence(tmp_path: Path):
    (row,) = rows_of(tmp_path, "# a comment of six words here\n# # O\na b O\n", separator="space")
    assert isinstance(row, Tagged)
    assert row.source == ("#", "a")
    assert row.location == "t.tsv:2"


def test_sentence_of_hash_lines_is_compared_with_the_first_other_line(tmp_path: Path):
    rows = rows_of(tmp_path, "# a licence of many words\n\n# # O\n\na b O\n", separator="space")
    assert [row.location for row in rows] == ["t.tsv:3", "t.tsv:5"]


def test_column_count_of_the_sentence_takes_precedence_over_that_of_the_file(tmp_path: Path):
    rows = rows_of(tmp_path, "a\tX\n\nb\tm\tY\n#\tn\tZ\n# c\tcomment\n")
    assert rows[1] == Tagged(("b", "#"), ("Y", "Z"), "t.tsv:3")


def test_bad_first_line_does_not_turn_words_into_comments(tmp_path: Path):
    rows = rows_of(tmp_path, "broken\n\n#\tX\n\na\tY\n")
    assert [type(row) for row in rows] == [BadRow, Tagged, Tagged]
    assert rows[1] == Tagged(("#",), ("X",), "t.tsv:3")


# bad rows: one per bad sentence; its neighbors are read

BAD = {
    "too few columns": ("a\tX\nb\n", "t.tsv:4: too few columns: expected at least 2, got 1", {"label": 1}),
    "one column": ("a\n", "t.tsv:3: too few columns: with 1, 'word' and 'label' are the same column", {}),
    "other separator": ("a X\n", "check that the columns are separated by tabs, or change the option 'separator'", {}),
    "ragged": ("a\tX\nb\tm\tX\n", "t.tsv:4: has 3 columns, but the first line of its sentence has 2", {}),
    "empty word": ("a\tX\n\tY\n", "t.tsv:4: the word is empty", {}),
    "word of spaces": ("a\tX\n \u00a0\tY\n", "t.tsv:4: the word is empty", {}),
    "empty word of a hash": ("a\tX\t1\n#x\t\t2\n", "t.tsv:4: the word is empty", {"word": 1, "label": 0}),
    "crlf": ("a\tX\r\nb\tY\r\n", "t.tsv:3: the line ends in CRLF", {}),
    "nul": ("a\tX\n\0\tX\n", "t.tsv:4: NUL byte", {}),
    "long": ("a" * 100_001 + "\tX\n", "t.tsv:3: the line has more than 100,000 characters", {}),
}


@pytest.mark.parametrize(("sentence", "reason", "options"), BAD.values(), ids=BAD.keys())
def test_bad_sentence_is_one_bad_row(tmp_path: Path, sentence: str, reason: str, options: dict[str, Any]):
    rows = rows_of(tmp_path, f"x\tX\n\n{sentence}\ny\tY\n", **options)
    assert [type(row) for row in rows] == [Tagged, BadRow, Tagged]
    assert reason in str(rows[1])


def test_invalid_utf8_and_byte_order_mark_are_bad_rows(tmp_path: Path):
    assert "t.tsv:2: byte 0xe9" in only_bad_row(tmp_path, b"a\tX\ncaf\xe9\tX\n")
    assert "t.tsv:1: the file starts with a byte order mark" in only_bad_row(tmp_path, b"\xef\xbb\xbfa\tX\n")


def test_negative_column_beyond_the_line_is_a_bad_row(tmp_path: Path):
    assert "too few columns: expected at least 3, got 2" in only_bad_row(tmp_path, "a\tX\n", label=-3)


def test_word_and_label_must_be_different_columns(tmp_path: Path):
    with pytest.raises(DataError, match="label: is the same column as 'word' \\(1\\)"):
        Columns(tmp_path, file="t", word=1, label=1)
    assert "are the same column" in only_bad_row(tmp_path, "a\tb\tc\n", word=2, label=-1)


def test_truncated_gzip_is_an_error_with_its_line(tmp_path: Path):
    packed = gzip.compress("".join(f"{n * 7919 % 9973}\tX\n\n" for n in range(5000)).encode())
    with pytest.raises(DataError, match=r"^t\.gz:\d+: the file is damaged from here on"):
        rows_of(tmp_path, packed[: len(packed) // 2], name="t.gz")


def test_missing_file_names_its_option(tmp_path: Path):
    with pytest.raises(DataError, match="no such file; correct the option 'file'"):
        list(Columns(tmp_path, file="none").rows())


def test_bad_sentence_is_not_loaded_into_memory(tmp_path: Path):
    source = columns(tmp_path, b"plain text without any columns at all\n" * 50_000)
    tracemalloc.start()
    assert len(list(source.rows())) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000


def test_source_is_registered():
    assert SOURCES["columns"] is Columns


# properties

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\t\n\0\ufeff"), min_size=1)
SENTENCES = st.lists(st.lists(st.tuples(WORDS.filter(str.strip), WORDS), min_size=1, max_size=4), max_size=4)


@settings(max_examples=100, deadline=None)
@given(sentences=SENTENCES)
def test_any_words_round_trip(sentences: list[list[tuple[str, str]]]):
    text = "\n".join("".join(f"{n}\t{word}\t{label}\n" for n, (word, label) in enumerate(s)) for s in sentences)
    with tempfile.TemporaryDirectory() as folder:
        rows = load_rows(columns(Path(folder), text, word=1, label=2), skip_bad=False).rows
    assert [list(zip(row.source, row.target, strict=True)) for row in rows] == sentences


@settings(max_examples=200, deadline=None)
@given(
    content=st.binary(max_size=120) | st.text("a#\t -.1\n", max_size=60).map(str.encode),
    word=st.integers(-3, 3),
    label=st.integers(-3, 3),
    separator=st.sampled_from(["tab", "space"]),
)
def test_any_bytes_give_rows_or_a_data_error(content: bytes, word: int, label: int, separator: str):
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows = rows_of(Path(folder), content, word=word, label=label, separator=separator)
        except DataError:
            return
    for row in rows:
        assert isinstance(row, BadRow) or (len(row.source) == len(row.target) > 0 and all(row.source))


@pytest.mark.skipif("SACCADE_DATA" not in os.environ, reason="SACCADE_DATA does not name the data folder")
def test_english_web_treebank_counts():
    folder = Path(os.environ["SACCADE_DATA"])
    loaded = load_rows(Columns(folder, file="ud/en_ewt-ud-dev.conllu.gz", word=1, label=3), skip_bad=False)
    assert len(loaded.rows) == 2001
    assert sum(len(row.source) for row in loaded.rows) == 25147
    assert len({label for row in loaded.rows for label in row.target}) == 17
