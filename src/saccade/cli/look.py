"""Commands that look: `saccade config show`, `saccade data check`, `saccade view`."""

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from saccade.cli.program import Checkpoint, Json, Sets, UsageError, app, config, data, must_be_recipe, must_be_run


@config.command
def show(recipe: str, /, *, sets: Sets = (), json_: Json = False) -> None:
    """Print the resolved config and where each value comes from.

    Parameters
    ----------
    recipe: str
        A recipe's file, or the name of a preset.
    """
    must_be_recipe(recipe, sets)
    from saccade.config import leaves, plain
    from saccade.recipe import read_recipe

    resolved = read_recipe(recipe, sets)
    values = leaves(plain(resolved.config))
    origins = {key: _origin(resolved.origins, key) for key in values}
    if json_:
        print(json.dumps({key: {"value": value, "from": origins[key]} for key, value in values.items()}, indent=1))
        return
    width = max(len(f"{key} = {value!r}") for key, value in values.items() if not isinstance(value, dict))
    for key, value in values.items():
        print(f"{f'{key} = {json.dumps(value, ensure_ascii=False)}':<{min(width, 72)}}  # {origins[key]}")


def _origin(origins: dict[str, str], key: str) -> str:
    """`norm = "rms"` also says `norm.kind`."""
    return origins.get(key) or origins.get(key.removesuffix(".kind"), "default")


@data.command
def check(recipe: str, /, *, sets: Sets = (), json_: Json = False) -> int:
    """Count and measure the text of a recipe; name bad lines as file:line: reason, the first ten of each text.

    Parameters
    ----------
    recipe: str
        A recipe's file.
    """
    must_be_recipe(recipe, sets)
    from saccade.data.check import check
    from saccade.data.sources import Nothing
    from saccade.recipe import read_recipe, sources_of, task_of

    recipe_ = read_recipe(recipe, sets).config
    splits = {name: source for name, source in sources_of(recipe_).items() if not isinstance(source, Nothing)}
    labels = not task_of(recipe_).writes
    report = check(splits, longest=recipe_.data.longest, labels=labels)
    if json_:
        print(json.dumps(report.plain(), ensure_ascii=False, indent=1))
    else:
        print("\n".join(report.lines()))
    return 1 if report.bad and not recipe_.data.skip_bad else 0


@app.command
def view(
    run: str,
    *sentences: str,
    output: Annotated[str, Parameter(name=("--output", "-o"), allow_leading_hyphen=True)] = "attention.html",
    target: str = "",
    beam: int | None = None,
    pieces: Annotated[bool, Parameter(negative="")] = False,
    checkpoint: Checkpoint = "auto",
) -> None:
    """Show what every attention looks at: a page that needs no network, and a small map in the terminal.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    sentences: str
        One or more sentences to translate.
    output: str
        The page to write; - is stdout, and then all else goes to stderr.
    target: str
        See the attention for this translation instead of the model's own.
    beam: int
        Beam size; the recipe's search if left out.
    pieces: bool
        Show pieces in the terminal instead of words.
    """
    if not sentences:
        raise UsageError('view needs a sentence: saccade view RUN "a sentence"')
    if target and len(sentences) > 1:
        raise UsageError("--target belongs to one sentence")
    must_be_run(run)
    from saccade.api import load
    from saccade.console import console
    from saccade.view.page import page, write_page
    from saccade.view.terminal import heat_map

    loaded = load(run, checkpoint)
    maps = [loaded.attention(text, target or None, beam=beam) for text in sentences]
    title, screen = f"Attention of {loaded.folder.path.name}", console()
    for each in maps:
        mean = (each if pieces else each.words()).mean("cross")
        print(each.target, file=sys.stderr if output == "-" else sys.stdout)
        screen.print(heat_map(mean, width=min(screen.width, 100)))
    if output == "-":
        sys.stdout.buffer.write(page(maps, title))
        return
    screen.print(f"wrote {write_page(maps, Path(output), title)}: open it in a browser", markup=False)
