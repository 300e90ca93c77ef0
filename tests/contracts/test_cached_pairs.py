"""Pairs from the cache give the batches of pairs in memory, whatever the rows, the task and the source."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.checks.cached_pairs import (
    EXAMPLES,
    Step,
    cached,
    check_key_covers,
    check_same_rows,
    encoded_both_ways,
    small_blocks,
    text_recipe,
    write_pairs,
)
from saccade.data.codecs import Codecs, LabelCodec
from saccade.data.flat_rows import FlatRows
from saccade.data.source_codecs import TextCodec
from saccade.data.sources import Pair, load_rows
from saccade.data.sources.jsonl import Jsonl
from saccade.data.sources.labeled import LabeledLines
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.tsv import Tsv
from saccade.data.tokenizers import TOKENIZERS
from saccade.errors import ConfigError, DataError
from saccade.recipe import sources_of
from saccade.tasks import TASKS
from saccade.tasks.classification import Classification
from saccade.tasks.translation import Translation
from saccade.training.training_rows import uses_cache

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


class WithoutShortTargets(Translation):
    """A task that leaves out other rows than the task it inherits from."""

    def left_out(self, sources: FlatRows, targets: FlatRows, longest: int) -> dict[str, np.ndarray]:
        return super().left_out(sources, targets, longest) | {"too short": targets.lengths < 2}


@pytest.fixture(autouse=True)
def another_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "without_short_targets", WithoutShortTargets)


def base(folder: Path) -> dict[str, Any]:
    return {}


def changes(**tables: Any) -> Step:
    return lambda folder: tables


def changed_file(folder: Path) -> dict[str, Any]:
    write_pairs(folder, [("c c", "d"), *EXAMPLES])
    return {}


def bad_line(folder: Path) -> dict[str, Any]:
    (folder / "t.en").write_bytes((folder / "t.en").read_bytes().replace(b"b\n", b"b\r\n", 1))
    return {}


def links(first: str) -> Step:
    """The pairs with links, those of the first pair as given."""

    def write(folder: Path) -> dict[str, Any]:
        (folder / "t.links").write_text(f"{first}\n" + "0-0\n" * (len(EXAMPLES) - 1), "utf-8")
        return {"data": {"train": {"links": "t.links"}}}

    return write


def tsv(**options: Any) -> Step:
    def write(folder: Path) -> dict[str, Any]:
        (folder / "t.tsv").write_text("a b\tc\td e\nb\ta a\tf\n", "utf-8")
        return {"data": {"train": {"kind": "tsv", "file": "t.tsv", **options}}}

    return write


CHANGES: dict[str, tuple[Step, ...]] = {
    "a file": (base, changed_file),
    "a bad line": (base, bad_line),
    "the sides": (base, changes(data={"train": {"src": "t.de", "tgt": "t.en"}})),
    "the links": (base, links("0-0"), links("0-9"), base),
    "the source's options": (tsv(), tsv(header=True), tsv(tgt=2)),
    "the task": (base, changes(task="without_short_targets")),
    "data.longest": (base, changes(data={"longest": 2})),
    "the tokenizer": (base, changes(data={"tokenizer": "characters"})),
    "the tokenizer's options": (base, changes(data={"tokenizer": {"kind": "words", "size": 2}})),
    "data.joint": (base, changes(data={"joint": False}, model={"shared_embeddings": False})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_cache_is_not_used_after_a_change_of(change: str, tmp_path: Path) -> None:
    check_key_covers(CHANGES[change], tmp_path, tmp_path / "cache")


def arrays(folder: Path) -> list[Path]:
    return [path.parent for path in folder.glob("cache/*/source_ids")]


@pytest.mark.parametrize(
    "version",
    [
        "saccade.training.training_rows.ARRAYS_FORMAT",
        "sentencepiece.__version__",
        "unicodedata.unidata_version",
    ],
)
def test_cache_is_not_used_after_a_change_of_a_version(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_key_covers([base], tmp_path, tmp_path / "cache")
    monkeypatch.setattr(version, "another")
    check_key_covers([base], tmp_path, tmp_path / "cache")
    assert len(arrays(tmp_path)) == 2


@pytest.mark.parametrize(
    "other",
    [
        changes(task={"kind": "translation", "mask_sources": 0.5}),
        changes(model={"encoder": "none"}),
        changes(model={"dim": 16}),
    ],
    ids=["masked sources", "no encoder", "another model"],
)
def test_what_the_arrays_do_not_depend_on_shares_the_entry(other: Step, tmp_path: Path) -> None:
    check_key_covers([base, other], tmp_path, tmp_path / "cache")
    assert len(arrays(tmp_path)) == 1


def test_bad_rows_are_an_error_even_if_an_entry_without_them_exists(tmp_path: Path) -> None:
    check_key_covers([bad_line], tmp_path, tmp_path / "cache")
    rows = cached(text_recipe(tmp_path, {"data": {"skip_bad": False}}), tmp_path / "cache", [])
    with pytest.raises(DataError, match=r"t\.en:2: the line ends in CRLF"):
        rows.learn()


def test_entries_hold_no_path(tmp_path: Path) -> None:
    check_key_covers([base], tmp_path, tmp_path / "cache")
    files = [path for path in (tmp_path / "cache").glob("*/*") if path.is_file()]
    assert {"manifest.json", "source_ids", "joint.model"} <= {path.name for path in files}
    for path in files:
        assert str(tmp_path).encode() not in path.read_bytes()
        assert b"t.en" not in path.read_bytes()


def test_task_outside_of_saccade_stays_in_memory(tmp_path: Path) -> None:
    write_pairs(tmp_path, EXAMPLES)
    recipe = text_recipe(tmp_path, {"task": "without_short_targets"})
    with pytest.raises(ConfigError, match=r"data\.cache: .* task is a class outside of Saccade; set it to \"auto\""):
        uses_cache(recipe, sources_of(recipe)["train"])
