"""Commands that look: `saccade config show`, `saccade data check`, `saccade view`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from saccade.cli.app import (
    Checkpoint,
    File,
    Json,
    Sets,
    UsageError,
    app,
    config,
    data,
    must_be_recipe,
    must_be_run,
    must_exist,
)
from saccade.errors import DataError, RunError

if TYPE_CHECKING:
    from rich.text import Text

    from saccade.api import Run
    from saccade.view.maps import AttentionMaps


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
    from saccade.data.sources import NoSource
    from saccade.recipe import read_recipe, sources_of, task_of

    recipe_ = read_recipe(recipe, sets).config
    splits = {name: source for name, source in sources_of(recipe_).items() if not isinstance(source, NoSource)}
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
    file: Annotated[str, File] = "",
    output: Annotated[str, Parameter(name=("--output", "-o"), allow_leading_hyphen=True)] = "attention.html",
    target: str | None = None,
    targets: Annotated[str, File] = "",
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
    file: str
        A file of sentences, one a line, plain or .gz; - is stdin. The terminal then shows translations only.
    output: str
        The page to write; - is stdout, and then all else goes to stderr.
    target: str
        See the attention for this translation instead of the model's own.
    targets: str
        With --file: a file of such translations, line by line.
    beam: int
        Beam size; the recipe's search if left out.
    pieces: bool
        Show pieces in the terminal instead of words.
    """
    if bool(sentences) == bool(file):
        raise UsageError(
            'view needs a sentence or a file: saccade view RUN "a sentence", or saccade view RUN --file FILE'
        )
    if target is not None and len(sentences) != 1:
        raise UsageError("--target belongs to one sentence; for the lines of a --file give --targets FILE")
    if targets and not file:
        raise UsageError("--targets goes with --file; for one sentence give --target TEXT")
    if file == targets == "-":
        raise UsageError("--file and --targets cannot both be stdin")
    must_exist(file, targets)
    must_be_run(run)
    from saccade.api import load
    from saccade.console import console, track
    from saccade.view.page import page, write_page

    pairs = _lines_to_view(file, targets) if file else [(text, target) for text in sentences]
    loaded, screen = load(run, checkpoint), console()
    looks = (_attention(loaded, text, forced, beam) for text, forced in pairs)
    maps = list(track(looks, len(pairs), "looking"))
    for each in maps:
        print(each.target, file=sys.stderr if output == "-" else sys.stdout)
        if not file:
            screen.print(_small_map(each, pieces, min(screen.width, 100)))
    title = f"Attention of {loaded.folder.path.name}"
    if output == "-":
        sys.stdout.buffer.write(page(maps, title))
        return
    screen.print(f"wrote {write_page(maps, Path(output), title)}: open it in a browser", markup=False)


def _lines_to_view(file: str, targets: str) -> list[tuple[str, str | None]]:
    """The sentences of a file, each with the translation it is to be seen with, if any."""
    from saccade.lines import file_lines

    sentences = list(file_lines(file))
    if not sentences:
        raise DataError(f"{file}: has no lines to look at")
    if not targets:
        return [(sentence, None) for sentence in sentences]
    forced = list(file_lines(targets))
    if len(forced) != len(sentences):
        raise DataError(
            f"{targets}: has {len(forced):,} lines, but {file} has {len(sentences):,}; make them line by line"
        )
    return list(zip(sentences, forced, strict=True))


def _attention(run: "Run", text: str, target: str | None, beam: int | None) -> "AttentionMaps":
    maps = run.attention(text, target, beam=beam)
    if not maps:
        raise RunError(f"{run.folder.path}: the model has no attention to look at")
    return maps


def _small_map(maps: "AttentionMaps", pieces: bool, width: int) -> "Text | str":
    """Between source and translation, averaged over layers and heads."""
    from saccade.view.terminal import heat_map

    if not any(each.kind == "cross" for each in maps.maps.values()):
        return "no attention between source and translation; the page shows what there is"
    return heat_map((maps if pieces else maps.words()).mean("cross"), width=width)
