"""`saccade config show`."""

import json

import cyclopts

from saccade.cli.app import ConfigOverrides, Json, app, recipe_layers

config = cyclopts.App(name="config", help="Inspect the config of a recipe.")
app.command(config)


@config.command
def show(recipe: str, /, *, overrides: ConfigOverrides = (), json_: Json = False) -> None:
    """Print the resolved config of a recipe, and where each value comes from.

    Parameters
    ----------
    recipe: str
        A recipe file, or the name of a preset.
    """
    layers = recipe_layers(recipe, overrides)
    from saccade.config import leaves, plain
    from saccade.recipe import resolve_recipe

    resolved = resolve_recipe(layers)
    values = leaves(plain(resolved.config))
    origins = {key: _origin(resolved.origins, key) for key in values}
    if json_:
        print(json.dumps({key: {"value": value, "from": origins[key]} for key, value in values.items()}, indent=1))
        return
    width = max(len(f"{key} = {value!r}") for key, value in values.items() if not isinstance(value, dict))
    for key, value in values.items():
        print(f"{f'{key} = {json.dumps(value, ensure_ascii=False)}':<{min(width, 72)}}  # {origins[key]}")


def _origin(origins: dict[str, str], key: str) -> str:
    """Where a value comes from. `norm = "rms"` is also the origin of `norm.kind`."""
    return origins.get(key) or origins.get(key.removesuffix(".kind")) or "default"
