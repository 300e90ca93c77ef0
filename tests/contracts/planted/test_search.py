"""The checks of search and of reordering the decoder state fail on planted defects."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.checks import decoding
from contracts.checks.common import perturbed
from contracts.checks.decoding import check_select
from contracts.checks.searches import check_search
from contracts.planted.defects import Check, Defect, Patch, assert_check_fails, each, on_model, patched
from contracts.variants import DEFAULT, filled, small
from saccade.config import build
from saccade.decode.constraints import Constraints
from saccade.decode.search import SEARCHES
from saccade.places import PerSentence, Places, select

pytestmark = pytest.mark.slow
APPLY = Constraints.apply  # the original function: the defects below call it after it is patched


def select_copying_the_memory(state: Any, rows: Any, sentences: Any = None) -> Any:
    if isinstance(state, PerSentence):
        return PerSentence(select(state.value, rows))
    if isinstance(state, dict):
        return {key: select_copying_the_memory(value, rows, sentences) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(select_copying_the_memory(value, rows, sentences) for value in state)
    return select(state, rows, sentences)


def search_check(kind: str) -> Check:
    tree = small(SEARCHES, kind)
    return lambda: check_search(lambda: build(filled(SEARCHES, tree), "search"), perturbed(DEFAULT.fresh()))


def apply_without_prefixes(self: Constraints, log_probs: Any, step: int) -> Any:
    return APPLY(replace(self, prefix=self.prefix[:, :0]), log_probs, step)


def apply_allowing_special_tokens(self: Constraints, log_probs: Any, step: int) -> Any:
    before = log_probs.clone()
    constrained = APPLY(self, log_probs, step)
    constrained[..., :3] = before[..., :3] + 9
    return constrained


SELECT = on_model(check_select)
EVERY_SEARCH = tuple(search_check(kind) for kind in SEARCHES)

DEFECTS = [
    Defect("the memory is copied per hypothesis", patched(decoding, "select", select_copying_the_memory), (SELECT,)),
    Defect(
        "the memory keeps its rows when sentences leave",
        patched(decoding, "select", lambda state, rows, sentences=None: select(state, rows)),
        (SELECT,),
    ),
    Defect(
        "the padding mask of the memory keeps its rows when sentences leave",
        lambda patch: patch.setattr(
            "saccade.places.is_dataclass",
            lambda value: not isinstance(value, Places) and hasattr(value, "__dataclass_fields__"),
        ),
        (SELECT,),
    ),
    Defect(
        "select reverses the hypotheses",
        patched(decoding, "select", lambda state, rows, sentences=None: select(state, rows.flip(0), sentences)),
        (SELECT,),
    ),
    Defect(
        "search gives states to the wrong sentence",
        lambda patch: patch.setattr(
            "saccade.decode.loops.select", lambda state, rows, sentences=None: select(state, rows.flip(0), sentences)
        ),
        EVERY_SEARCH,
    ),
    Defect("forced prefixes are ignored", patched(Constraints, "apply", apply_without_prefixes), EVERY_SEARCH),
    Defect("special tokens are allowed", patched(Constraints, "apply", apply_allowing_special_tokens), EVERY_SEARCH),
]


@each(DEFECTS)
def test_contract_fails_on_planted_defect(defect: Defect, check: Check, monkeypatch: Patch) -> None:
    assert_check_fails(defect, check, monkeypatch)
