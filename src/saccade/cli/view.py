"""`saccade view`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from saccade.cli.app import (
    Checkpoint,
    Device,
    InputFile,
    OutputFile,
    UsageError,
    app,
    must_be_run,
    must_exist,
    must_have_folder,
)
from saccade.errors import DataError, RunError

if TYPE_CHECKING:
    from rich.text import Text

    from saccade.api import Run
    from saccade.view.maps import AttentionMaps


@app.command
def view(
    run: str,
    *sentences: str,
    file: InputFile = "",
    output: OutputFile = "attention.html",
    target: str | None = None,
    targets: InputFile = "",
    beam: int | None = None,
    pieces: Annotated[bool, Parameter(negative="")] = False,
    checkpoint: Checkpoint = "auto",
    device: Device = "auto",
) -> None:
    """Show attention weights: all of them as an offline HTML page, and the cross-attention in the terminal.

    The page has every layer and head, the terminal the average over all layers
    and heads.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    sentences: str
        One or more sentences to translate.
    file: str
        A file with one sentence per line, plain or .gz; - is stdin. The terminal then shows only the translations.
    output: str
        The HTML page to write; - is stdout, and all other output then goes to stderr.
    target: str
        Show the attention for this translation instead of the model's own.
    targets: str
        With --file: a file with one such translation per line.
    beam: int
        Beam size; the default is the recipe's search.
    pieces: bool
        Show tokenizer pieces in the terminal instead of words.
    """
    if bool(sentences) == bool(file):
        raise UsageError(
            'view needs a sentence or a file: saccade view RUN "a sentence", or saccade view RUN --file FILE'
        )
    if target is not None and len(sentences) != 1:
        raise UsageError("--target needs exactly one sentence; for the lines of a --file use --targets FILE")
    if targets and not file:
        raise UsageError("--targets needs --file; for one sentence use --target TEXT")
    if file == targets == "-":
        raise UsageError("--file and --targets cannot both be stdin")
    must_exist(file, targets)
    must_have_folder(output)
    must_be_run(run)
    from saccade.api import load
    from saccade.console import console, track
    from saccade.view.page import page, write_page

    pairs = _read_pairs(file, targets) if file else [(text, target) for text in sentences]
    loaded, screen = load(run, checkpoint, device=device), console()
    attention = (_attention(loaded, source, forced, beam) for source, forced in pairs)
    maps_by_sentence = list(track(attention, len(pairs), "computing attention"))
    for maps in maps_by_sentence:
        print(maps.target, file=sys.stderr if output == "-" else sys.stdout)
        if not file:
            screen.print(_terminal_map(maps, pieces, min(screen.width, 100)))
    title = f"Attention of {loaded.folder.path.name}"
    if output == "-":
        sys.stdout.buffer.write(page(maps_by_sentence, title))
        return
    screen.print(f"wrote {write_page(maps_by_sentence, Path(output), title)}: open it in a browser", markup=False)


def _read_pairs(file: str, targets: str) -> list[tuple[str, str | None]]:
    """The sentences of a file, each with its line of `targets`, or None if there is no such file."""
    from saccade.lines import file_lines

    sentences = list(file_lines(file))
    if not sentences:
        raise DataError(f"{file}: the file is empty; write one sentence per line")
    if not targets:
        return [(sentence, None) for sentence in sentences]
    forced = list(file_lines(targets))
    if len(forced) != len(sentences):
        raise DataError(
            f"{targets}: has {len(forced):,} lines, but {file} has {len(sentences):,}; "
            "give one translation for each sentence"
        )
    return list(zip(sentences, forced, strict=True))


def _attention(run: "Run", source: str, target: str | None, beam: int | None) -> "AttentionMaps":
    maps = run.attention(source, target, beam=beam)
    if not maps:
        raise RunError(f"{run.folder.path}: the model has no attention to show")
    return maps


def _terminal_map(maps: "AttentionMaps", pieces: bool, width: int) -> "Text | str":
    """The cross-attention, averaged over layers and heads."""
    from saccade.view.terminal import heat_map

    if not any(attention.kind == "cross" for attention in maps.maps.values()):
        return "the model has no cross-attention; the page shows its other attention"
    return heat_map((maps if pieces else maps.words()).mean("cross"), width=width)
