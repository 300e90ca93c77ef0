"""Layers of a config from recipe files, presets and `--set` flags."""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from saccade.config import python_layer, suggestion
from saccade.errors import ConfigError


def preset_names() -> list[str]:
    return sorted(f.name[:-5] for f in resources.files("saccade.presets").iterdir() if f.name.endswith(".toml"))


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: is not valid TOML: {error}") from None


def _read_file(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        neighbors = {p.name for p in path.parent.glob("*.toml")} - {"pyproject.toml"}
        hint = suggestion(path.name, [*neighbors, *preset_names()])
        raise ConfigError(f"{path}: no such recipe or preset{hint}") from None
    except IsADirectoryError:
        config = path / "config.toml"
        resume = f"; to resume this run: `saccade train {config} --run {path}`" if config.is_file() else ""
        raise ConfigError(f"{path}: is a folder; give a recipe file{resume}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a recipe: {getattr(error, 'strerror', error)}") from None


def file_layers(name: str, folder: Path = Path(), seen: tuple[str, ...] = ()) -> list[Any]:
    """The layers of a recipe (a path) or preset (a name): first those that it extends, then its own."""
    path = folder / name
    if name in preset_names():
        origin, text = f"preset {name}", (resources.files("saccade.presets") / f"{name}.toml").read_text("utf-8")
    else:
        origin, text = str(path), _read_file(path)
    identity = origin if name in preset_names() else str(path.resolve())
    if identity in seen:
        raise ConfigError(f"{origin}: extends itself, through {' → '.join(seen)}; remove one of these `extends`")
    tree = _parse(text, origin)
    bases = extended_names(tree.pop("extends", []), f"{origin}: extends")
    layers = [layer for base in bases for layer in file_layers(base, path.parent, (*seen, identity))]
    return [*layers, python_layer(tree, origin)]


def extended_names(value: Any, key: str = "extends") -> list[str]:
    """The recipes and presets that the value of `extends` names. `key` begins the text of an error."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{key}: expected a name or an array of names, got {value!r}")
    return [*names]


def flag_layer(text: str) -> Any:
    """The layer of a flag such as `model.encoder.depth=6`. A value that is not valid TOML is taken as a string."""
    key, equals, value = text.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise ConfigError(f"--set {text}: expected KEY=VALUE, such as --set model.encoder.depth=6")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    tree: Any = parsed
    for name in reversed(names):
        tree = {name: tree}
    return python_layer(tree, f"--set {key.strip()}")
