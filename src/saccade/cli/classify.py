"""`saccade classify`: a label for each line of text, or for each numeric series."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saccade.cli.app import Checkpoint, Device, InputFile, Json, OutputFile, app
from saccade.cli.labeling import json_line, open_run, write_lines

if TYPE_CHECKING:
    from saccade.api import Run


@app.command
def classify(
    run: str,
    file: InputFile = "-",
    /,
    *,
    output: OutputFile = "-",
    json_: Json = False,
    checkpoint: Checkpoint = "auto",
    device: Device = "auto",
) -> None:
    """Label each line, or each series. Reads stdin if no file is given.

    There is one output line for each input line.

    For a run on numeric series, FILE is .npz (arrays named NAME_x, or all
    arrays with two axes) or text with one frame per line. Each output line is
    NAME and label.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    file: str
        A text file, plain or .gz, or a file of series; - is stdin.
    output: str
        The output file; - is stdout.
    """
    loaded = open_run(run, file, output, checkpoint, device)
    from saccade.tasks.classification import Classification

    loaded.require(Classification)
    write_lines(output, _classified_lines(loaded, file, json_))


def _classified_lines(loaded: "Run", file: str, json_: bool) -> Iterator[str]:
    from saccade.lines import SERIES_PER_GROUP, grouped, in_groups, series

    if loaded.reads_frames:
        for group in in_groups(series(file, loaded.codecs.source.size), SERIES_PER_GROUP):
            predictions = loaded.probabilities([frames for _, frames in group])
            for (name, _), probabilities in zip(group, predictions, strict=True):
                result = _with_label(probabilities)
                yield json_line({"name": name, **result}) if json_ else f"{name}\t{result['label']}"
        return
    for lines in grouped(file):
        for text, probabilities in zip(lines, loaded.probabilities(lines), strict=True):
            result = _with_label(probabilities)
            yield json_line({"text": text, **result}) if json_ else str(result["label"])


def _with_label(probabilities: dict[str, float]) -> dict[str, object]:
    """The probabilities and the most probable label; the label of an empty input is ""."""
    label = max(probabilities, key=probabilities.__getitem__, default="")
    return {"label": label, "probabilities": probabilities}
