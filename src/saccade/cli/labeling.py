"""What `saccade tag`, `classify` and `predict` share: opening the run, and writing one line per result."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from saccade.cli.app import Device, must_be_run, must_differ, must_exist, must_have_folder

if TYPE_CHECKING:
    from saccade.api import Run


def open_run(run: str, file: str, output: str, checkpoint: str, device: Device) -> "Run":
    """Check the arguments and load the model."""
    must_exist(file)
    must_be_run(run)
    must_differ(file, output)
    must_have_folder(output)
    from saccade.api import load

    loaded = load(run, checkpoint, device=device)
    _ = loaded.model  # loaded here, so that a damaged run fails before the output file is truncated
    return loaded


def write_lines(output: str, lines: Iterator[str]) -> None:
    from saccade.lines import open_output

    with open_output(output) as out:
        for line in lines:
            print(line, file=out, flush=True)


def json_line(record: dict[str, object]) -> str:
    return json.dumps(record, ensure_ascii=False)
