"""`saccade translate`: one output line for each input line."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.cli.app import (
    Checkpoint,
    Device,
    EngineName,
    InputFile,
    Json,
    OutputFile,
    Quantization,
    UsageError,
    app,
    must_be_run,
    must_differ,
    must_exist,
    must_have_folder,
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
    file: InputFile = "-",
    /,
    *,
    output: OutputFile = "-",
    json_: Json = False,
    best: int = 1,
    prefix: str = "",
    prefixes: InputFile = "",
    alignments: str = "",
    search: SearchFlags = SearchFlags(),
    sample: SampleFlags = SampleFlags(),
    checkpoint: Checkpoint = "auto",
    device: Device = "auto",
    engine: EngineName = "auto",
    quantization: Quantization | None = None,
) -> None:
    """Translate text line by line, in order. Reads stdin if no file is given.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    file: str
        A text file, plain or .gz; - is stdin.
    output: str
        The output file; - is stdout.
    best: int
        With --json: the number of translations for each line (an n-best list). More than 1 implies beam search.
    prefix: str
        Text that every translation must begin with.
    prefixes: str
        A file with one such prefix per line.
    alignments: str
        A file for word alignments, such as `0-0 1-2` (source-target indices, from 0). With --json also in the output.
    engine: str
        The inference engine; auto takes CTranslate2 if it is installed and supports the model, otherwise torch, and
        prints its name.
    quantization: str
        With CTranslate2: int8 is smaller and faster, but translations may differ; the default is float32.
    """
    sampling = sample.options()
    if sampling is not None and (search.beam is not None or best > 1):
        raise UsageError("--sample draws one output per line and cannot be combined with --beam or --best")
    if sampling is not None and search.length_penalty is not None:
        raise UsageError("--length-penalty is an option of beam search and cannot be combined with --sample")
    search.check(best)
    if best > 1 and not json_:
        raise UsageError("--best gives several outputs per line; add --json to print them")
    if prefix and prefixes:
        raise UsageError("--prefix and --prefixes cannot be combined")
    must_exist(prefixes, file)
    must_be_run(run)
    _check_files(file, output, alignments)
    engine_name = _engine_name(engine, quantization, bool(alignments), device)

    from saccade.formats.engines import EngineRequest, choose
    from saccade.lines import open_output

    load = _LazyRun(run, checkpoint, device)
    request = EngineRequest(
        run=Path(run),
        checkpoint=checkpoint,
        load=load,
        decode_settings=lambda decode: search.settings(decode, sampling, best, scores=json_),
        has_prefixes=bool(prefix or prefixes),
        quantization=quantization or "float32",
        report=lambda text: print(text, file=sys.stderr),
    )
    # Load the engine before the output file is truncated: a damaged run, or one of another task, fails here.
    chosen = choose(engine_name, request)
    if alignments:
        _ = load().alignment_settings
    with ExitStack() as stack:
        out = stack.enter_context(open_output(output))
        alignment_file = stack.enter_context(open_output(alignments)) if alignments else None
        for group in _translate_groups(chosen, file, prefix, prefixes):
            for source, outputs, links in _with_links(load, group, bool(alignment_file)):
                # A byte-level model may generate a newline, but each input line has exactly one output line.
                text = _json_line(source, outputs, links) if json_ else outputs[0].text.replace("\n", " ")
                print(text, file=out, flush=True)
                if alignment_file:
                    print(links, file=alignment_file, flush=True)


def _translate_groups(
    chosen: "ChosenEngine", file: str, prefix: str, prefixes: str
) -> "Iterator[Iterable[tuple[str, list[Output]]]]":
    """The lines of a file and their outputs, in groups of lines."""
    from saccade.decode.engine import in_order
    from saccade.lines import file_lines, grouped

    prefix_lines = file_lines(prefixes) if prefixes else None
    finished = 0
    for lines in grouped(file):
        forced = list(itertools.islice(prefix_lines, len(lines))) if prefix_lines else [prefix] * len(lines)
        if len(forced) < len(lines):
            raise DataError(f"{prefixes}: has fewer lines than {file}; give one prefix for each line")
        yield zip(lines, in_order(chosen.engine.generate(lines, chosen.decode, forced, finished)), strict=True)
        finished += len(lines)


def _check_files(file: str, output: str, alignments: str) -> None:
    must_differ(file, output)
    must_have_folder(output, alignments)
    if alignments and alignments in (file, output):
        raise UsageError(f"{alignments}: is the input or output file; write alignments to another file")


class _LazyRun:
    """Loads the run, and torch, at the first call. An exported model needs neither."""

    def __init__(self, run: str, checkpoint: str, device: Device):
        self._arguments = run, checkpoint
        self._device: Device = device

    def __call__(self) -> "Run":
        return self._run

    @cached_property
    def _run(self) -> "Run":
        from saccade.api import load
        from saccade.tasks.translation import Translation

        run = load(*self._arguments, device=self._device)
        run.require(Translation)
        return run


def _engine_name(engine: str, quantization: str | None, alignments: bool, device: str) -> str:
    """The engine to use: --alignments and a GPU imply torch, and --quantization implies CTranslate2."""
    if alignments and engine not in ("auto", "torch"):
        raise UsageError(
            f"--alignments needs attention weights, which --engine {engine} does not provide; use --engine torch"
        )
    if quantization and alignments:
        raise UsageError("--quantization needs CTranslate2 and --alignments needs torch; leave one of them out")
    if quantization and engine not in ("auto", "ctranslate2"):
        raise UsageError("--quantization needs --engine ctranslate2")
    if device in ("cuda", "mps"):
        if quantization or engine not in ("auto", "torch"):
            raise UsageError(f"--device {device} needs --engine torch; leave --engine and --quantization out")
        return "torch"
    return "torch" if alignments else "ctranslate2" if quantization else engine


def _with_links(
    load: _LazyRun, group: "Iterable[tuple[str, list[Output]]]", align: bool
) -> "Iterator[tuple[str, list[Output], str | None]]":
    """Each source, its outputs, and with `align` the word alignment of the best output. The whole group is aligned in
    one call, which is several times as fast as one call per line."""
    if not align:
        return ((source, outputs, None) for source, outputs in group)
    from saccade.data.links import pharaoh

    rows = [*group]
    alignments = load().align([(source, outputs[0].text) for source, outputs in rows])
    return ((source, outputs, pharaoh(links)) for (source, outputs), links in zip(rows, alignments, strict=True))


def _json_line(source: str, outputs: "list[Output]", links: str | None) -> str:
    def plain(output: "Output") -> dict[str, Any]:
        return {
            "translation": output.text,
            "score": output.score,
            "log_prob": output.log_prob,
            "tokens": output.pieces,
        }

    alternatives = {"alternatives": [plain(output) for output in outputs[1:]]} if len(outputs) > 1 else {}
    alignment = {} if links is None else {"alignment": links}
    return json.dumps({"source": source, **plain(outputs[0]), **alignment, **alternatives}, ensure_ascii=False)
