"""`saccade tag` and `saccade classify`: labels of text, line by line, or of series of numbers."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from saccade.cli.app import Checkpoint, File, Json, UsageError, app, must_be_run, must_exist

if TYPE_CHECKING:
    from saccade.api import Run

OutputPath = Annotated[str, Parameter(name=("--output", "-o"), allow_leading_hyphen=True)]


@app.command
def tag(
    run: str,
    file: Annotated[str, File] = "-",
    /,
    *,
    output: OutputPath = "-",
    columns: Annotated[bool, Parameter(negative="")] = False,
    json_: Json = False,
    checkpoint: Checkpoint = "auto",
) -> None:
    """Label every word of every line, or every frame of a series. Reads stdin when no file is given.

    Words are parted by spaces, and so are their labels: as many lines out as in. For a run on series FILE is .npz
    (arrays NAME_x, or all with two axes) or text, a frame a line; out comes NAME, first frame, end, label for each
    stretch of equal labels.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    file: str
        A text file, plain or .gz, or a file of series; - is stdin.
    output: str
        Where to write; - is stdout.
    columns: bool
        Write a word and its label a line, and a blank line after each sentence.
    """
    if columns and json_:
        raise UsageError("--columns and --json do not go together")
    loaded = _opened(run, file, output, checkpoint)
    from saccade.tasks.tagging import Tagging

    loaded.require(Tagging)
    if columns and loaded.reads_frames:
        raise UsageError("--columns shows words, but this run reads series of numbers")
    _write(output, _tagged(loaded, file, columns, json_))


@app.command
def classify(
    run: str,
    file: Annotated[str, File] = "-",
    /,
    *,
    output: OutputPath = "-",
    json_: Json = False,
    checkpoint: Checkpoint = "auto",
) -> None:
    """Give every line, or every series, its label. Reads stdin when no file is given.

    As many lines out as in. For a run on series FILE is .npz (arrays NAME_x, or all with two axes) or text, a frame a
    line; out comes NAME and label.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    file: str
        A text file, plain or .gz, or a file of series; - is stdin.
    output: str
        Where to write; - is stdout.
    """
    loaded = _opened(run, file, output, checkpoint)
    from saccade.tasks.classification import Classification

    loaded.require(Classification)
    _write(output, _classified(loaded, file, json_))


def _opened(run: str, file: str, output: str, checkpoint: str) -> "Run":
    must_exist(file)
    must_be_run(run)
    if "-" not in (file, output) and Path(output).exists() and Path(output).samefile(file):
        raise UsageError(f"{output}: is the input; write to another file")
    from saccade.api import load

    loaded = load(run, checkpoint)
    _ = loaded.model  # a damaged run must not empty the output file first
    return loaded


def _write(output: str, lines: Iterator[str]) -> None:
    from saccade.lines import output as open_output

    with open_output(output) as out:
        for line in lines:
            print(line, file=out, flush=True)


def _tagged(loaded: "Run", file: str, columns: bool, json_: bool) -> Iterator[str]:
    from saccade.lines import SERIES_PER_GROUP, grouped, in_groups, series

    if loaded.reads_frames:
        for group in in_groups(series(file, loaded.codecs.source.size), SERIES_PER_GROUP):
            for (name, _), labels in zip(group, loaded.tag([frames for _, frames in group]), strict=True):
                yield from [_json({"name": name, "labels": labels})] if json_ else _stretches(name, labels)
        return
    for lines in grouped(file):
        sentences = [line.split() for line in lines]
        for words, labels in zip(sentences, loaded.tag(sentences), strict=True):
            if json_:
                yield _json({"words": words, "labels": labels})
            elif columns:
                yield "".join(f"{word}\t{label}\n" for word, label in zip(words, labels, strict=True))
            else:
                yield " ".join(labels)


def _stretches(name: str, labels: Sequence[str]) -> Iterator[str]:
    from saccade.tasks.labeling import runs

    return (f"{name}\t{first}\t{end}\t{label}" for label, first, end in runs(labels))


def _classified(loaded: "Run", file: str, json_: bool) -> Iterator[str]:
    from saccade.lines import SERIES_PER_GROUP, grouped, in_groups, series

    if loaded.reads_frames:
        for group in in_groups(series(file, loaded.codecs.source.size), SERIES_PER_GROUP):
            likely = loaded.probabilities([frames for _, frames in group])
            for (name, _), each in zip(group, likely, strict=True):
                yield _json({"name": name, **_chosen(each)}) if json_ else f"{name}\t{_chosen(each)['label']}"
        return
    for lines in grouped(file):
        for text, each in zip(lines, loaded.probabilities(lines), strict=True):
            yield _json({"text": text, **_chosen(each)}) if json_ else str(_chosen(each)["label"])


def _chosen(likely: dict[str, float]) -> dict[str, object]:
    return {"label": max(likely, key=likely.__getitem__, default=""), "probabilities": likely}


def _json(record: dict[str, object]) -> str:
    return json.dumps(record, ensure_ascii=False)
