"""The contracts of choices: which wiring a part needs, and that TOML holds all of its options."""

import tomllib
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pydantic import create_model

from contracts.variants import Table, options
from saccade.config import Config, Slot, python_layer, resolve, to_toml, wiring


def check_wiring(part: Callable[..., Any], available: Iterable[str]) -> None:
    """Every wiring parameter of the part has a name that the code which builds its slot passes."""
    unknown, passed = sorted(set(wiring(part)) - set(available)), sorted(available)
    assert not unknown, f"{part} has the parameters {unknown}, but the code that builds its slot passes only {passed}"


def check_toml(table: Table, tree: dict[str, Any]) -> None:
    """TOML contains every option of a choice, and reading it gives the same config."""
    root: Any = create_model("Root", __base__=Config, slot=(Annotated[Any, Slot(table)], ...))
    config = resolve(root, [python_layer({"slot": tree})]).config
    written = tomllib.loads(to_toml(config))
    assert set(written["slot"]) == {"kind", *options(table, tree["kind"])}, "an option is missing in the TOML"
    assert resolve(root, [python_layer(written)]).config == config, "reading the TOML gives another config"
