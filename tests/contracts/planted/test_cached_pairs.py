"""The checks of cached pairs fail on planted defects."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from contracts.checks.cached_pairs import (
    EXAMPLES,
    check_key_covers,
    check_same_rows,
    encoded_both_ways,
    small_blocks,
    write_pairs,
)
from contracts.planted.defects import Check, Defect, Patch, assert_check_fails, each, patched
from contracts.test_cached_pairs import CHANGES, WithoutShortTargets
from saccade.data.codecs import Codecs
from saccade.data.sources.pairs import Pairs
from saccade.data.sources.rows import line_of
from saccade.data.tokenizers import WordKind
from saccade.encoding import cache, pair_arrays
from saccade.encoding.tokenizer_pool import TokenizerPool
from saccade.tasks import TASKS
from saccade.tasks.translation import Translation
from saccade.training import training_rows

pytestmark = pytest.mark.slow
ENCODED = TokenizerPool.encoded


def rows_check() -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        write_pairs(Path(name), [*EXAMPLES, ("a " * 9, "b"), ("", "a"), ("d", "e")])
        small_blocks(patch, 2)
        words = WordKind().learn(["a b c d e f"])
        source = Pairs(Path(name), src="t.en", tgt="t.de")
        both = encoded_both_ways(Translation(), source, Codecs(words, words), "words", 5, 1, Path(name) / "arrays")
        check_same_rows(*both)


def key_check(change: str) -> Check:
    def check() -> None:
        with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
            patch.setitem(TASKS, "without_short_targets", WithoutShortTargets)
            check_key_covers(CHANGES[change], Path(name), Path(name) / "cache")

    return check


def key_without(*left_out: str) -> Callable[[Patch], None]:
    def key(facts: Mapping[str, Any]) -> str:
        return cache.key_of({name: value for name, value in facts.items() if name not in left_out})

    return patched(training_rows, "key_of", key)


def key_without_settings(facts: Mapping[str, Any]) -> str:
    """A key in which arrays and codecs differ, but not by their settings."""
    settings = facts.get("arrays") or facts.get("codecs") or {}
    return cache.key_of({**facts, "arrays": "arrays" in facts, "codecs": sorted(settings)})


DEFECTS = [
    Defect(
        "locations one line late",
        patched(pair_arrays, "line_of", lambda pair: line_of(pair) + 1),
        (rows_check,),
    ),
    Defect(
        "blocks in another order",
        patched(TokenizerPool, "encoded", lambda self, blocks: reversed([*ENCODED(self, blocks)])),
        (rows_check,),
    ),
    Defect(
        "every row is kept",
        patched(pair_arrays, "kept_rows", lambda left_out: ~(0 * sum(left_out.values())).astype(bool)),
        (rows_check,),
    ),
    Defect(
        "a key without the data files and their options",
        key_without("data", "source"),
        (key_check("a file"), key_check("the sides"), key_check("the links"), key_check("the source's options")),
    ),
    Defect("a key without the task", key_without("task"), (key_check("the task"),)),
    Defect(
        "a key without the settings",
        patched(training_rows, "key_of", key_without_settings),
        (
            key_check("data.longest"),
            key_check("the tokenizer"),
            key_check("the tokenizer's options"),
        ),
    ),
]


@each(DEFECTS)
def test_contract_fails_on_planted_defect(defect: Defect, check: Check, monkeypatch: Patch) -> None:
    assert_check_fails(defect, check, monkeypatch)
