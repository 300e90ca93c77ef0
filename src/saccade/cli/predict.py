"""`saccade predict`: the output of a run of any task for each line of text, or for each numeric series."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saccade.cli.app import Checkpoint, Device, InputFile, OutputFile, app
from saccade.cli.labeling import open_run, write_lines

if TYPE_CHECKING:
    from saccade.api import Run


@app.command
def predict(
    run: str,
    file: InputFile = "-",
    /,
    *,
    output: OutputFile = "-",
    checkpoint: Checkpoint = "auto",
    device: Device = "auto",
) -> None:
    """Print the output of a run, of whatever task, for each line. Reads stdin if no file is given.

    translate, tag and classify do the same for runs of one task, with more
    options.

    For a run on numeric series, FILE is .npz (arrays named NAME_x, or all
    arrays with two axes) or text with one frame per line. Each output line is
    NAME and the output, separated by a tab.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    file: str
        A text file, plain or .gz, or a file of series; - is stdin.
    output: str
        The output file; - is stdout.
    """
    write_lines(output, _predicted_lines(open_run(run, file, output, checkpoint, device), file))


def _predicted_lines(loaded: "Run", file: str) -> Iterator[str]:
    from saccade.lines import SERIES_PER_GROUP, grouped, in_groups, series

    if loaded.reads_frames:
        for group in in_groups(series(file, loaded.codecs.source.size), SERIES_PER_GROUP):
            lines = loaded.predict([frames for _, frames in group])
            yield from (f"{name}\t{line}" for (name, _), line in zip(group, lines, strict=True))
        return
    for lines in grouped(file):
        yield from loaded.predict(lines)
