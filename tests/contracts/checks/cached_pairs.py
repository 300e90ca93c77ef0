"""The contracts of the cache of encoded pairs: the batches of the in-memory path, and keys that cover what the arrays
depend on."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from contracts.checks.batches import first_updates
from saccade.data.batches import Corpus
from saccade.data.codecs import Codecs
from saccade.data.sources import LineSource, RowStream, load_rows
from saccade.encoding import pair_arrays
from saccade.encoding.cache import Cache
from saccade.encoding.pair_arrays import PairEncoder, encode_blocks, map_pairs
from saccade.recipe import Recipe, recipe_of, sources_of
from saccade.runs.folder import checksums, learn_codecs
from saccade.tasks.task import Encoded, PairTask
from saccade.training.ranks import SingleProcess
from saccade.training.training_rows import CachedPairs


def encoded_both_ways(
    task: PairTask[Any, Any],
    source: LineSource,
    codecs: Codecs[Any, Any],
    kind: str,
    longest: int,
    processes: int,
    folder: Path,
) -> tuple[Encoded, Encoded]:
    """The rows encoded in memory, and block by block into files."""
    in_memory = task.encode(load_rows(source, skip_bad=True).rows, codecs, longest)
    encoder = PairEncoder(task, codecs, longest)
    folder.mkdir()
    left_out = encode_blocks(encoder.blocks(RowStream(source, skip_bad=True)), encoder, kind, processes, folder)
    return in_memory, map_pairs(folder, left_out, task.collate, source)


def check_same_rows(in_memory: Encoded, mapped: Encoded) -> None:
    """Both have the same locations, reasons for left-out rows, and batches, to the last id."""
    assert [*mapped.locations] == [*in_memory.locations], "the locations differ"
    assert mapped.left_out == in_memory.left_out or not in_memory.locations, "other rows are left out"
    if in_memory.locations:
        check_same_batches(in_memory.corpus, mapped.corpus)


def check_same_batches(first: Corpus, second: Corpus) -> None:
    for (expected, state), (actual, actual_state) in zip(
        *(first_updates(c, 30, 8) for c in (first, second)), strict=True
    ):
        assert state == actual_state
        for one, other in zip(expected, actual, strict=True):
            assert one.rows == other.rows, "the batches have other rows"
            for side, other_side in (
                (one.source, other.source),
                (one.inputs, other.inputs),
                (one.outputs, other.outputs),
            ):
                if side is not None:
                    assert torch.equal(side.values, other_side.values), "the batches have other ids"
                    assert side.values.dtype == other_side.values.dtype
                    assert (side.keep is None) == (other_side.keep is None)
    assert first.target_tokens == second.target_tokens


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────

PAIRS = {"kind": "pairs", "src": "t.en", "tgt": "t.de"}
BASE: dict[str, Any] = {
    "data": {"train": PAIRS, "tokenizer": "words", "joint": True, "longest": 20, "cache": "always", "skip_bad": True},
    "model": {"dim": 8, "block": {"self": {"heads": 2}}},
}


def text_recipe(folder: Path, changes: dict[str, Any] | None = None) -> Recipe:
    return recipe_of(BASE | {"data": BASE["data"] | {"folder": str(folder)}}, changes)


def cached(recipe: Recipe, cache: Path, messages: list[str]) -> CachedPairs:
    """The training rows of a recipe in a cache. `messages` gets what it says."""
    sources, task = sources_of(recipe), recipe.built_task
    train = sources["train"]
    assert isinstance(train, LineSource)
    assert isinstance(task, PairTask)
    return CachedPairs(recipe, task, train, checksums({"train": train}), Cache(cache, messages.append))


def write_pairs(folder: Path, pairs: Sequence[tuple[str, str]]) -> None:
    for name, side in (("t.en", 0), ("t.de", 1)):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")


EXAMPLES = [("a b c", "c b a"), ("b", "b"), ("c d e f", "f e d c"), ("a a", "a a")]


Step = Callable[[Path], dict[str, Any]]  # writes files into a folder, and returns changes of the recipe


def check_key_covers(steps: Iterable[Step], folder: Path, cache: Path) -> None:
    """After each change of files or settings, the arrays are those of the in-memory path, not the earlier ones."""
    write_pairs(folder, EXAMPLES)
    for step in steps:
        recipe = text_recipe(folder, step(folder))
        rows = cached(recipe, cache, [])
        codecs = rows.learn()
        mapped = rows.encode(codecs, SingleProcess())
        loaded = load_rows(sources_of(recipe)["train"], skip_bad=recipe.data.skip_bad)
        learned = learn_codecs(recipe, loaded.rows)
        assert recipe.built_task.files(codecs) == recipe.built_task.files(learned), "a stale tokenizer"
        check_same_rows(recipe.built_task.encode(loaded.rows, learned, recipe.data.longest), mapped)
        assert rows.bad_rows == loaded.bad_rows, "another number of bad rows"


def small_blocks(patch: Any, rows: int = 3) -> None:
    patch.setattr(pair_arrays, "BLOCK_ROWS", rows)
