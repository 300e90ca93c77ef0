"""Pairs from the cache give the batches of pairs in memory, whatever the rows, the task and the source."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.checks.cached_pairs import (
    EXAMPLES,
    check_key_covers,
    check_same_rows,
    encoded_both_ways,
    small_blocks,
    write_pairs,
)
from saccade.data.codecs import Codecs, LabelCodec
from saccade.data.source_codecs import TextCodec
from saccade.data.sources import Pair, load_rows
from saccade.data.sources.jsonl import Jsonl
from saccade.data.sources.labeled import LabeledLines
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.tsv import Tsv
from saccade.data.tokenizers import TOKENIZERS
from saccade.tasks.classification import Classification
from saccade.tasks.translation import Translation

TEXT = st.text(st.sampled_from("ab  é\u2028\t"), max_size=12)
ROWS = st.lists(st.tuples(TEXT, TEXT), max_size=14)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


def fresh(folder: Path) -> Path:
    return folder / f"arrays-{len([*folder.iterdir()])}"


@pytest.mark.parametrize("kind", ["words", "bytes"])
@pytest.mark.parametrize("has_encoder", [True, False])
@given(rows=ROWS, longest=st.integers(1, 12), block=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_pairs_from_the_cache_give_the_same_batches(
    kind: str, has_encoder: bool, folder: Path, rows: list[tuple[str, str]], longest: int, block: int
) -> None:
    write_pairs(folder, rows)
    tokenizer = TOKENIZERS[kind]().learn(["a b ab", "é b"])
    source = Pairs(folder, src="t.en", tgt="t.de")
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, block)
        both = encoded_both_ways(
            Translation(has_encoder), source, Codecs(tokenizer, tokenizer), kind, longest, 1, fresh(folder)
        )
    check_same_rows(*both)


SOURCES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "tsv": ("h\tx\na b\tc d\tx\n\ta\nonly\nb\tb\n", lambda folder: Tsv(folder, file="rows", header=True)),
    "jsonl": (
        '{"src": "a", "tgt": "b c"}\n{"src": ""}\n{"src": "a b", "tgt": "d"}\n',
        lambda folder: Jsonl(folder, file="rows"),
    ),
    "labeled": ("b a c\n__label__c x y z\n\nnolabel\nb b\n", lambda folder: LabeledLines(folder, file="rows")),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("task", [Translation(), Classification()], ids=["translation", "classification"])
def test_every_source_of_lines_gives_the_same_batches(
    name: str, task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, make = SOURCES[name]
    (tmp_path / "rows").write_text(content, "utf-8")
    source = make(tmp_path)
    pairs = [row for row in load_rows(source, skip_bad=True).rows if isinstance(row, Pair)]
    words = TOKENIZERS["words"]().learn(text for pair in pairs for text in (pair.source, pair.target))
    labels = LabelCodec.learn(pair.target for pair in pairs)
    codecs = Codecs(words, words) if isinstance(task, Translation) else Codecs(TextCodec(words), labels)
    small_blocks(monkeypatch, 2)
    check_same_rows(*encoded_both_ways(task, source, codecs, "words", 2, 1, tmp_path / "arrays"))


def test_processes_give_the_same_rows_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pairs(tmp_path, [(f"a{n} b", "é " * (n % 5)) for n in range(200)])
    kind = TOKENIZERS["sentencepiece"](size=60)
    codecs = Codecs(kind.learn([f"a{n} b" for n in range(100)]), kind.learn(["é é", "é a b"] * 20))
    source = Pairs(tmp_path, src="t.en", tgt="t.de")
    small_blocks(monkeypatch, 20)
    both = encoded_both_ways(Translation(), source, codecs, "sentencepiece", 8, 2, tmp_path / "arrays")
    check_same_rows(*both)


def changed_file(folder: Path) -> dict[str, Any]:
    write_pairs(folder, [("c c", "d"), *EXAMPLES])
    return {}


def bad_line(folder: Path) -> dict[str, Any]:
    (folder / "t.en").write_bytes((folder / "t.en").read_bytes().replace(b"b\n", b"b\r\n", 1))
    return {"data": {"skip_bad": True}}


def swapped(folder: Path) -> dict[str, Any]:
    return {"data": {"train": {"src": "t.de", "tgt": "t.en"}}}


CHANGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "a file": changed_file,
    "a bad line": bad_line,
    "the sides": swapped,
    "data.longest": lambda folder: {"data": {"longest": 2}},
    "the tokenizer": lambda folder: {"data": {"tokenizer": "characters"}},
    "the tokenizer's options": lambda folder: {"data": {"tokenizer": {"kind": "words", "size": 2}}},
    "data.joint": lambda folder: {"data": {"joint": False}, "model": {"shared_embeddings": False}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_cache_is_not_used_after_a_change_of(change: str, tmp_path: Path) -> None:
    check_key_covers(CHANGES[change], tmp_path, tmp_path / "cache")
