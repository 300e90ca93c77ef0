"""The checks of search and of reordering the decoder state fail on planted defects."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.checks import decoding
from contracts.checks.common import perturbed
from contracts.checks.decoding import check_select
from contracts.checks.searches import check_search
from contracts.planted.defects import Check, Defect, Patch, assert_check_fails, each, on_model, patched
from contracts.variants import DEFAULT, Variant, filled, named, small
from saccade import places
from saccade.config import build
from saccade.decode.constraints import Constraints
from saccade.decode.search import SEARCHES
from saccade.decode.torch_engine import PromptedDecoder
from saccade.parts.mixers.attend import MemoryKeys
from saccade.places import PerSentence, select

pytestmark = pytest.mark.slow
# the original functions: the defects below call them after they are patched
APPLY, MAP_STATE = Constraints.apply, places.map_state


def select_copying_the_memory(state: Any, rows: Any, sentences: Any = None) -> Any:
    if isinstance(state, PerSentence):
        return PerSentence(select(state.value, rows))
    if isinstance(state, dict):
        return {key: select_copying_the_memory(value, rows, sentences) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(select_copying_the_memory(value, rows, sentences) for value in state)
    return select(state, rows, sentences)


def memory_places_stay(state: Any, *arguments: Any) -> Any:
    mapped = MAP_STATE(state, *arguments)
    return replace(mapped, places=state.places) if isinstance(state, MemoryKeys) else mapped


def start_without_padding_mask(self: PromptedDecoder, memory: Any, rows: int) -> Any:
    return self._decoder.step(memory.values, self._decoder.start(None, rows))[1]


def search_check(kind: str, variant: Variant = DEFAULT) -> Check:
    tree = small(SEARCHES, kind)
    return lambda: check_search(lambda: build(filled(SEARCHES, tree), "search"), perturbed(variant.fresh()))


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
        patched(places, "map_state", memory_places_stay),
        (SELECT,),
    ),
    Defect(
        "the padding of shorter prompts is read",
        patched(PromptedDecoder, "start", start_without_padding_mask),
        (search_check("beam", named("decoder-only")), search_check("greedy", named("decoder-only-recurrent"))),
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
