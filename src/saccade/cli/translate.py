"""`saccade translate`: lines in, lines out."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from saccade.cli.app import (
    Checkpoint,
    EngineName,
    File,
    Json,
    Quantization,
    UsageError,
    app,
    must_be_run,
    must_exist,
)
from saccade.cli.flags import SampleFlags, SearchFlags
from saccade.errors import DataError

if TYPE_CHECKING:
    from saccade.api import Run
    from saccade.decode.engine import Output
    from saccade.formats.engines import ChosenEngine


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
    alignments: str = "",
    search: SearchFlags = SearchFlags(),
    sample: SampleFlags = SampleFlags(),
    checkpoint: Checkpoint = "auto",
    engine: EngineName = "auto",
    quantization: Quantization | None = None,
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
    alignments: str
        A file for word alignments, a line such as `0-0 1-2` a translation (source-target, from 0); in --json, too.
    engine: str
        What computes: auto takes the fastest that is installed and can run the model, and says which.
    quantization: str
        With CTranslate2: int8 is smaller and faster, and its translations may differ; float32 if left out.
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
    _check_files(file, output, alignments)
    wanted = _engine(engine, quantization, bool(alignments))

    from saccade.formats.engines import EngineRequest, choose
    from saccade.lines import output as open_output

    loaded = _Loaded(run, checkpoint)
    wish = EngineRequest(
        run=Path(run),
        checkpoint=checkpoint,
        load=loaded,
        decode_settings=lambda decode: search.settings(decode, draws, best, scores=json_),
        forced=bool(prefix or prefixes),
        quantization=quantization or "float32",
        say=lambda text: print(text, file=sys.stderr),
    )
    chosen = choose(wanted, wish)  # a damaged run, or one for labels, must not empty the output file first
    if alignments:
        _ = loaded().alignment_settings
    with ExitStack() as stack:
        out = stack.enter_context(open_output(output))
        linked = stack.enter_context(open_output(alignments)) if alignments else None
        for found_lines in _found(chosen, file, prefix, prefixes):
            for source, found, links in _with_links(loaded, found_lines, bool(linked)):
                # a line in is a line out, whatever a model of bytes may write
                text = _json_line(source, found, links) if json_ else found[0].text.replace("\n", " ")
                print(text, file=out, flush=True)
                if linked:
                    print(links, file=linked, flush=True)


def _found(
    chosen: "ChosenEngine", file: str, prefix: str, prefixes: str
) -> "Iterator[Iterable[tuple[str, list[Output]]]]":
    """The lines of a file and their outputs, in groups."""
    from saccade.decode.engine import in_order
    from saccade.lines import file_lines, grouped

    forced = file_lines(prefixes) if prefixes else None
    done = 0
    for lines in grouped(file):
        begins = list(itertools.islice(forced, len(lines))) if forced else [prefix] * len(lines)
        if len(begins) < len(lines):
            raise DataError(f"{prefixes}: has fewer lines than {file}")
        yield zip(lines, in_order(chosen.engine.generate(lines, chosen.decode, begins, done)), strict=True)
        done += len(lines)


def _check_files(file: str, output: str, alignments: str) -> None:
    if "-" not in (file, output) and Path(output).exists() and Path(output).samefile(file):
        raise UsageError(f"{output}: is the input; write to another file")
    if alignments and alignments in (file, output):
        raise UsageError(f"{alignments}: is the input or the output; write alignments to another file")


class _Loaded:
    """The run with all that torch needs, once someone asks for it."""

    def __init__(self, run: str, checkpoint: str):
        self._arguments = run, checkpoint

    def __call__(self) -> "Run":
        return self._run

    @cached_property
    def _run(self) -> "Run":
        from saccade.api import load

        return load(*self._arguments)


def _engine(engine: str, quantization: str | None, alignments: bool) -> str:
    """The engine to ask for, where other flags have a say in it."""
    if alignments and engine not in ("auto", "torch"):
        raise UsageError(f"--alignments reads attention, which --engine {engine} does not show; use --engine torch")
    if quantization and (alignments or engine not in ("auto", "ctranslate2")):
        raise UsageError("--quantization is for --engine ctranslate2")
    return "torch" if alignments else "ctranslate2" if quantization else engine


def _with_links(
    load: _Loaded, found_lines: "Iterable[tuple[str, list[Output]]]", linked: bool
) -> "Iterator[tuple[str, list[Output], str | None]]":
    """Each source and its outputs with the alignment of the best, if wanted: of all lines at once, which is several
    times as fast as of each when it is there."""
    if not linked:
        return ((source, found, None) for source, found in found_lines)
    from saccade.data.links import pharaoh

    rows = [*found_lines]
    links = load().align([(source, found[0].text) for source, found in rows])
    return ((source, found, pharaoh(each)) for (source, found), each in zip(rows, links, strict=True))


def _json_line(source: str, found: "list[Output]", links: str | None) -> str:
    def plain(output: "Output") -> dict[str, Any]:
        return {
            "translation": output.text,
            "score": output.score,
            "log_prob": output.log_prob,
            "tokens": output.pieces,
        }

    others = {"alternatives": [plain(output) for output in found[1:]]} if len(found) > 1 else {}
    alignment = {} if links is None else {"alignment": links}
    return json.dumps({"source": source, **plain(found[0]), **alignment, **others}, ensure_ascii=False)
