"""Layers that differ from the others of their stack: `exceptions = [{ at = [3, 7], feed_forward = "gated" }]`.

Each exception is merged over the block of its encoder or decoder, as one config file over another, and checked as a
block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationInfo
from pydantic_core import PydanticCustomError, core_schema

from saccade.config import Choice, Config, Natural, Slot, merged_tables, plain
from saccade.errors import BuildError
from saccade.models.blocks import BLOCKS


@dataclass(frozen=True)
class LayerChoice(Choice):
    """The block of the layers `at`, which are numbered from 0."""

    at: tuple[int, ...]

    def table(self) -> dict[str, Any]:
        return {"at": [*self.at]} | super().table()


class LayerNumbers(Config):
    """The numbers of the layers of an exception."""

    at: Annotated[tuple[Natural, ...], Field(min_length=1)]


class ExceptionsOfBlock:
    """Validates the option `exceptions` of a class that also has the option `block`, which comes before it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.tuple_variable_schema(core_schema.with_info_plain_validator_function(self.fill))

    def fill(self, value: Any, info: ValidationInfo) -> LayerChoice:
        if isinstance(value, LayerChoice):
            return value
        if not isinstance(value, dict):
            raise PydanticCustomError("saccade", "{text}", {"text": f"expected a table with 'at'; got {value!r}"})
        numbers = LayerNumbers.model_validate({key: value[key] for key in ("at",) if key in value})
        changes = {key: option for key, option in value.items() if key != "at"}
        block = info.data.get("block", {"kind": next(iter(BLOCKS))})  # missing if it is invalid, which is another error
        base = plain(block)
        choice = Slot(BLOCKS).fill(merged_tables(base, changes))
        return LayerChoice(choice.kind, choice.factory, choice.options, numbers.at)


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
