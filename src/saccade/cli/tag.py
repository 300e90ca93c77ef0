"""`saccade tag`: a label for each word of a line, or for each frame of a numeric series."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from saccade.cli.app import Checkpoint, Device, InputFile, Json, OutputFile, UsageError, app
from saccade.cli.labeling import json_line, open_run, write_lines

if TYPE_CHECKING:
    from saccade.api import Run


@app.command
def tag(
    run: str,
    file: InputFile = "-",
    /,
    *,
    output: OutputFile = "-",
    columns: Annotated[bool, Parameter(negative="")] = False,
    json_: Json = False,
    checkpoint: Checkpoint = "auto",
    device: Device = "auto",
) -> None:
    """Label each word of each line, or each frame of a series. Reads stdin if no file is given.

    Words are separated by spaces, and so are the labels; there is one output
    line for each input line.

    For a run on numeric series, FILE is .npz (arrays named NAME_x, or all
    arrays with two axes) or text with one frame per line. The output has one
    line for each segment of equal labels: NAME, first frame, end frame
    (exclusive) and label, separated by tabs; with --json, one line for each
    series.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    file: str
        A text file, plain or .gz, or a file of series; - is stdin.
    output: str
        The output file; - is stdout.
    columns: bool
        Write one word and its label per line, and a blank line after each sentence.
    """
    if columns and json_:
        raise UsageError("--columns and --json cannot be combined")
    loaded = open_run(run, file, output, checkpoint, device)
    from saccade.tasks.tagging import Tagging

    loaded.require(Tagging)
    if columns and loaded.reads_frames:
        raise UsageError("--columns is for text, but this run reads numeric series")
    write_lines(output, _tagged_lines(loaded, file, columns, json_))


def _tagged_lines(loaded: "Run", file: str, columns: bool, json_: bool) -> Iterator[str]:
    from saccade.lines import SERIES_PER_GROUP, grouped, in_groups, series

    if loaded.reads_frames:
        for group in in_groups(series(file, loaded.codecs.source.size), SERIES_PER_GROUP):
            for (name, _), labels in zip(group, loaded.tag([frames for _, frames in group]), strict=True):
                yield from [json_line({"name": name, "labels": labels})] if json_ else _segment_lines(name, labels)
        return
    for lines in grouped(file):
        sentences = [line.split() for line in lines]
        for words, labels in zip(sentences, loaded.tag(sentences), strict=True):
            if json_:
                yield json_line({"words": words, "labels": labels})
            elif columns:
                yield "".join(f"{word}\t{label}\n" for word, label in zip(words, labels, strict=True))
            else:
                yield " ".join(labels)


def _segment_lines(name: str, labels: Sequence[str]) -> Iterator[str]:
    from saccade.tasks.labeling import label_spans

    return (f"{name}\t{first}\t{end}\t{label}" for label, first, end in label_spans(labels))
