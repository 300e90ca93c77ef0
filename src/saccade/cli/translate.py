"""`saccade translate`: lines in, lines out."""

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from saccade.cli.flags import SampleFlags, SearchFlags
from saccade.cli.program import Checkpoint, File, Json, UsageError, app, must_be_run, must_exist
from saccade.errors import DataError

if TYPE_CHECKING:
    from saccade.decode.engine import Output


@app.command
def translate(
    run: str,
    file: Annotated[str, File] = "-",
    /,
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"), allow_leading_hyphen=True)] = "-",
    json_: Json = False,
    best: int = 1,
    prefix: str = "",
    prefixes: Annotated[str, File] = "",
    search: SearchFlags = SearchFlags(),
    sample: SampleFlags = SampleFlags(),
    checkpoint: Checkpoint = "auto",
) -> None:
    """Translate lines: as many out as in, in order. Reads stdin when no file is given.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    file: str
        A text file, plain or .gz; - is stdin.
    output: str
        Where to write; - is stdout.
    best: int
        With --json: so many outputs a line.
    prefix: str
        Text that every translation must begin with.
    prefixes: str
        A file of such texts, one a line.
    """
    draws = sample.options()
    if draws is not None and (search.beam is not None or best > 1):
        raise UsageError("--sample draws one output a line; it does not go with --beam or --best")
    if draws is not None and search.length_penalty is not None:
        raise UsageError("--length-penalty ranks what a beam found; it does not go with --sample")
    search.check(best)
    if best > 1 and not json_:
        raise UsageError("--best gives several outputs a line; add --json to see them")
    if prefix and prefixes:
        raise UsageError("--prefix and --prefixes do not go together")
    must_exist(prefixes, file)
    must_be_run(run)
    if "-" not in (file, output) and Path(output).exists() and Path(output).samefile(file):
        raise UsageError(f"{output}: is the input; write to another file")

    from saccade.api import load
    from saccade.lines import file_lines, grouped
    from saccade.lines import output as open_output

    loaded = load(run, checkpoint)
    decode = search.settings(loaded.recipe.decode, draws, best)
    forced = file_lines(prefixes) if prefixes else None
    done = 0
    _ = loaded.engine  # a damaged run, or one for labels, must not empty the output file first
    with open_output(output) as out:
        for lines in grouped(file):
            begins = list(itertools.islice(forced, len(lines))) if forced else [prefix] * len(lines)
            if len(begins) < len(lines):
                raise DataError(f"{prefixes}: has fewer lines than {file}")
            for source, found in zip(lines, loaded.outputs(lines, decode, begins, done), strict=True):
                # a line in is a line out, whatever a model of bytes may write
                print(_json_line(source, found) if json_ else found[0].text.replace("\n", " "), file=out, flush=True)
            done += len(lines)


def _json_line(source: str, found: "list[Output]") -> str:
    def plain(output: "Output") -> dict[str, Any]:
        return {
            "translation": output.text,
            "score": output.score,
            "log_prob": output.log_prob,
            "tokens": output.pieces,
        }

    others = {"alternatives": [plain(output) for output in found[1:]]} if len(found) > 1 else {}
    return json.dumps({"source": source, **plain(found[0]), **others}, ensure_ascii=False)
