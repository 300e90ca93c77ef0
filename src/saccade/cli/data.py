"""`saccade data check`."""

import json

import cyclopts

from saccade.cli.app import ConfigOverrides, Json, app, recipe_layers

data = cyclopts.App(name="data", help="Check the data of a recipe before training.")
app.command(data)


@data.command
def check(recipe: str, /, *, overrides: ConfigOverrides = (), json_: Json = False) -> int:
    """Print statistics of a recipe's data, and its bad rows as file:line: reason (the first ten of each split).

    The exit code is 1 if a row is bad or a group is in several splits, unless
    data.skip_bad is true.

    Parameters
    ----------
    recipe: str
        A recipe file, or the name of a preset.
    """
    layers = recipe_layers(recipe, overrides)
    from saccade.data.check import check as check_data
    from saccade.data.sources import NoSource
    from saccade.recipe import resolve_recipe, sources_of

    config = resolve_recipe(layers).config
    splits = {name: source for name, source in sources_of(config).items() if not isinstance(source, NoSource)}
    report = check_data(splits, longest=config.data.longest, labels=config.built_task.has_labels)
    if json_:
        print(json.dumps(report.plain(), ensure_ascii=False, indent=1))
    else:
        print("\n".join(report.lines()))
    return 1 if report.bad and not config.data.skip_bad else 0
