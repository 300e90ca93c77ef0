"""Layers that differ from the others of their stack: `exceptions = [{ at = [3, 7], feed_forward = "gated" }]`.

Each exception is merged over the block of its encoder or decoder, as one config file over another, and checked as a
block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ValidationInfo
from pydantic_core import core_schema

from saccade.config import Choice, Slot, custom_error, invalid, merged_tables, plain
from saccade.errors import BuildError
from saccade.models.blocks import BLOCKS


@dataclass(frozen=True)
class LayerChoice(Choice):
    """The block of the layers `at`, which are numbered from 0. `changes` is what differs from the block of the other
    layers: only this is stored, so that a later change of that block holds for these layers, too."""

    at: tuple[int, ...]
    changes: Mapping[str, Any]

    def table(self) -> dict[str, Any]:
        return {"at": [*self.at], **self.changes}


class ExceptionsOfBlock:
    """Validates the option `exceptions` of a class that also has the option `block`, which comes before it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.tuple_variable_schema(core_schema.with_info_plain_validator_function(self.fill))

    def fill(self, value: Any, info: ValidationInfo) -> LayerChoice:
        if isinstance(value, LayerChoice):
            return value
        if not isinstance(value, dict):
            raise custom_error(f"expected a table with 'at'; got {value!r}")
        layers = _layer_numbers(value)
        changes = {key: option for key, option in value.items() if key != "at"}
        if not changes:
            raise custom_error("changes nothing; name what is different in these layers, or leave the exception out")
        block = info.data.get("block", {"kind": next(iter(BLOCKS))})  # missing if it is invalid, which is another error
        base = plain(block)
        choice = Slot(BLOCKS).fill(merged_tables(base, changes))
        return LayerChoice(
            choice.kind, choice.factory, choice.options, layers, _with_defaults(changes, base, plain(choice))
        )


def _layer_numbers(exception: Mapping[str, Any]) -> tuple[int, ...]:
    at = exception.get("at")
    if isinstance(at, tuple) and at and all(type(number) is int and number >= 0 for number in at):
        return at
    got = f"; got {[*at] if isinstance(at, tuple) else at!r}" if "at" in exception else ""
    raise invalid({("at",): f"expected an array of layer numbers, counted from 0, such as [0, 2]{got}"})


def _with_defaults(changes: Any, base: Any, merged: Any) -> Any:
    """The changes that made `merged` of `base`, with all options of every new kind."""
    tables = isinstance(changes, dict) and isinstance(base, dict) and isinstance(merged, dict)
    if not tables or base.get("kind") != merged.get("kind"):
        return merged
    return {key: _with_defaults(change, base.get(key), merged[key]) for key, change in changes.items()}


LayerExceptions = Annotated[tuple[LayerChoice, ...], ExceptionsOfBlock()]


def exceptions_by_layer(exceptions: Sequence[LayerChoice], layers: int) -> Mapping[int, tuple[str, LayerChoice]]:
    """Layer number → the exception for it, with its config key."""
    found: dict[int, tuple[str, LayerChoice]] = {}
    for number, exception in enumerate(exceptions):
        key = f"exceptions.{number}"
        for layer in exception.at:
            if layer >= layers:
                raise BuildError(
                    f"there is no layer {layer}: the {layers} layers are numbered from 0 to {layers - 1}", (key, "at")
                )
            if layer in found:
                raise BuildError(f"layer {layer} is named twice; name each layer once", (key, "at"))
            found[layer] = key, exception
    return found
