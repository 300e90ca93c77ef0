"""Parts of a nested decoder state, by kind."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor

from contracts.checks.common import children, tensors
from saccade.parts.mixers.attend import KeyValueCache, MemoryKeys
from saccade.parts.mixers.unprojected import CoverageState
from saccade.places import PerSentence


def coverage_states(state: Any) -> Iterator[CoverageState]:
    if isinstance(state, CoverageState):
        yield state
    else:
        for child in children(state):
            yield from coverage_states(child)


def per_sentence_values(state: Any) -> Iterator[Any]:
    if isinstance(state, PerSentence):
        yield state.value
    else:
        for child in children(state):
            yield from per_sentence_values(child)


def float_tensors(state: Any) -> Iterator[list[Tensor]]:
    """The floating-point tensors of a state, each in a group of its own. Keys and values are one group: a value has no
    effect where its key has a low score."""
    if isinstance(state, (Tensor, KeyValueCache, MemoryKeys)):
        if group := [tensor for tensor in tensors(state) if tensor.is_floating_point()]:
            yield group
    else:
        for child in children(state):
            yield from float_tensors(child)


def with_replaced_tensors(state: Any, replacements: Mapping[int, Tensor]) -> Any:
    """A copy of the state in which each tensor whose id() is a key of `replacements` is replaced."""
    if isinstance(state, Tensor):
        return replacements.get(id(state), state)
    if isinstance(state, Mapping):
        return {key: with_replaced_tensors(value, replacements) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(with_replaced_tensors(value, replacements) for value in state)
    if is_dataclass(state) and not isinstance(state, type):
        values = {
            field.name: with_replaced_tensors(getattr(state, field.name), replacements) for field in fields(state)
        }
        return replace(state, **values)
    return state
