"""`saccade align`: which words belong together, from attention or by counting, and how good that is."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import cyclopts
from cyclopts import Parameter

from saccade.cli.app import Checkpoint, File, Json, UsageError, app, must_be_run, must_exist

if TYPE_CHECKING:
    from saccade.align.attention import AlignmentSettings
    from saccade.api import Run
    from saccade.data.links import Gold, Links

align = cyclopts.App(name="align", help="Word alignments: from a run's attention, by counting, and their scores.")
app.command(align)

Symmetrise = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
TextFile = Annotated[str, File]
OutputFile = Annotated[str, Parameter(name=("--output", "-o"), allow_leading_hyphen=True)]
Base = Annotated[Literal["auto", "0", "1"], Parameter(help="Where words count from; auto: the file shows it.")]
Numbers = Annotated[tuple[int, ...], Parameter(negative="", consume_multiple=True)]


@align.default
def attention(
    run: str,
    *,
    src: TextFile,
    tgt: TextFile,
    output: OutputFile = "-",
    back: str = "",
    symmetrise: Symmetrise = "grow-diag-final-and",
    layer: Numbers = (),
    head: Numbers = (),
    step: Literal["input", "output", ""] = "",
    end: Literal["ignore", "null", ""] = "",
    checkpoint: Checkpoint = "auto",
) -> None:
    """Link the words of two files by a run's attention: a line such as `0-0 1-2` a pair (source-target, from 0).

    Parameters
    ----------
    run: str
        The folder of a trained run that translates SRC into TGT.
    src: str
        Sentences, one a line, words parted by spaces; plain or .gz.
    tgt: str
        Their translations.
    output: str
        Where to write; - is stdout.
    back: str
        A run of the other direction: the links of both are made one.
    symmetrise: str
        How: intersection, union, grow-diag, grow-diag-final, grow-diag-final-and.
    layer: int
        Attentions to the source to read, from 0; what `saccade align search` found, or the usual one, if left out.
    head: int
        Heads to average, from 0; all of the layer if left out.
    step: str
        Read a word at the step whose input or whose output it is.
    end: str
        When the end symbol is looked at most: ignore it, or leave the word without a link (null).
    """
    must_exist(src, tgt)
    for folder in (run, back):
        if folder:
            must_be_run(folder)
    from saccade.aligners.symmetrize import SYMMETRIZE
    from saccade.api import load
    from saccade.data.links import pharaoh, transposed

    pairs = _pairs(src, tgt)
    flags = {"step": step, "end": end}
    loaded = [load(folder, checkpoint) for folder in (run, back) if folder]
    readings = [_reading(each, layer, head, flags) for each in loaded]
    links = _aligned(loaded[0], pairs, readings[0])
    if back:
        others = _aligned(loaded[1], [(target, source) for source, target in pairs], readings[1])
        links = [SYMMETRIZE[symmetrise](one, transposed(other)) for one, other in zip(links, others, strict=True)]
    _write(map(pharaoh, links), output)


@align.command
def search(
    run: str,
    *,
    src: TextFile,
    tgt: TextFile,
    gold: TextFile,
    base: Base = "auto",
    json_: Json = False,
    checkpoint: Checkpoint = "auto",
) -> None:
    """Find the heads and the step whose links agree best with known ones, and keep that in the run.

    Parameters
    ----------
    run: str
        The folder of a trained run that translates SRC into TGT.
    src: str
        Sentences for development, one a line.
    tgt: str
        Their translations.
    gold: str
        Their links, made by people or by `saccade align count`.
    """
    must_exist(src, tgt, gold)
    must_be_run(run)
    from saccade.align.attention import WordPairs
    from saccade.align.attention import search as search_readings
    from saccade.api import load
    from saccade.console import console

    pairs, loaded = _pairs(src, tgt), load(run, checkpoint)
    known = _links_of(gold, base, pairs)
    found = search_readings(loaded.model, WordPairs.of(loaded.codecs, pairs), known, loaded.recipe.decode.batch_tokens)
    best, scores = found[0]
    loaded.folder.store_alignment_settings(
        best, {"aer": scores.aer, "pairs": len(pairs), "checkpoint": loaded.checkpoint.name}
    )
    if json_:
        print(json.dumps([reading.plain() | scores.plain() for reading, scores in found], indent=1))
        return
    for reading, each in found[:10]:
        print(f"AER {each.aer:5.2f}  precision {each.precision:5.2f}  recall {each.recall:5.2f}  {reading}")
    console().print(f"the first of {len(found)} is kept in {run}: saccade align and translate use it", markup=False)


@align.command
def score(
    *, gold: TextFile, system: TextFile, gold_base: Base = "auto", system_base: Base = "auto", json_: Json = False
) -> None:
    """Score links against gold ones: alignment error rate, precision, recall, F1, in per cent.

    Parameters
    ----------
    gold: str
        Gold links, one line a pair; `1p2` is a link that is possible, but not sure.
    system: str
        Links to score.
    """
    must_exist(gold, system)
    from saccade.metrics.alignment import score_alignments

    wanted = _links_of(gold, gold_base)
    found = [each.possible for each in _links_of(system, system_base)]
    if len(found) != len(wanted):
        raise UsageError(f"{system} has {len(found):,} lines but {gold} has {len(wanted):,}")
    scores = score_alignments(found, wanted)
    if json_:
        print(json.dumps(scores.plain(), indent=1))
        return
    print(f"AER {scores.aer:.2f}  precision {scores.precision:.2f}  recall {scores.recall:.2f}  F1 {scores.f1:.2f}")
    print(
        f"{scores.links:,} links against {scores.sure:,} sure and {scores.possible:,} possible, {len(wanted):,} pairs"
    )


@align.command
def count(
    *,
    src: TextFile,
    tgt: TextFile,
    output: OutputFile = "-",
    symmetrise: Symmetrise | Literal["forward", "backward", "graded"] = "grow-diag-final-and",
) -> None:
    """Link words by counting which occur together (IBM Model 1, then an HMM), learned on the two files themselves.

    Parameters
    ----------
    src: str
        Sentences, one a line, words parted by spaces; plain or .gz.
    tgt: str
        Their translations.
    output: str
        Where to write; - is stdout.
    symmetrise: str
        How the links of both directions are made one; forward or backward: only one of them; graded: all, with those
        that only one of them has marked as possible (1p2), which is the best guide for training.
    """
    must_exist(src, tgt)
    from saccade.aligners.statistical import align as align_one_way
    from saccade.aligners.statistical import align_both_ways
    from saccade.aligners.symmetrize import SYMMETRIZE, graded
    from saccade.console import console
    from saccade.data.links import marked, pharaoh, transposed

    pairs, screen = _pairs(src, tgt), console()
    sources, targets = [s.lower().split() for s, _ in pairs], [t.lower().split() for _, t in pairs]

    def say(line: str) -> None:
        screen.print(line, markup=False)

    if symmetrise == "forward":
        _write(map(pharaoh, align_one_way(sources, targets, report=say)), output)
    elif symmetrise == "backward":
        _write((pharaoh(transposed(links)) for links in align_one_way(targets, sources, report=say)), output)
    elif symmetrise == "graded":
        _write((marked(graded(*both)) for both in align_both_ways(sources, targets, say)), output)
    else:
        _write((pharaoh(SYMMETRIZE[symmetrise](*both)) for both in align_both_ways(sources, targets, say)), output)


# ── what the commands share ───────────────────────────────────────────────────────────────────────


def _pairs(src: str, tgt: str) -> list[tuple[str, str]]:
    from saccade.lines import file_lines
    from saccade.metrics.pairs import paired

    return paired([*file_lines(src)], [*file_lines(tgt)], src, tgt)


def _links_of(name: str, base: str, pairs: Sequence[tuple[str, str]] | None = None) -> "list[Gold]":
    """The links of a file; of these pairs, if they are given."""
    from saccade.data.links import inside, parse_all
    from saccade.lines import file_lines

    found = parse_all(file_lines(name), name, None if base == "auto" else int(base))
    if pairs is not None:
        if len(found) != len(pairs):
            raise UsageError(f"{name} has {len(found):,} lines, but there are {len(pairs):,} pairs")
        for number, (each, (source, target)) in enumerate(zip(found, pairs, strict=True), 1):
            inside(each.possible, len(source.split()), len(target.split()), f"{name}:{number}")
    return found


def _reading(run: "Run", layers: Sequence[int], heads: Sequence[int], flags: dict[str, str]) -> "AlignmentSettings":
    from dataclasses import replace

    from saccade.align.attention import with_heads

    base = with_heads(run.model, run.alignment_settings, layers, heads) if layers or heads else run.alignment_settings
    return replace(base, **{name: value for name, value in flags.items() if value})


def _aligned(run: "Run", pairs: Sequence[tuple[str, str]], reading: "AlignmentSettings") -> "list[Links]":
    from saccade.console import track

    links = dict(track(run.aligned(pairs, reading), len(pairs), "aligning"))
    return [links[row] for row in range(len(pairs))]


def _write(lines: Iterable[str], output: str) -> None:
    from saccade.lines import output as open_output

    with open_output(output) as out:
        for line in lines:
            print(line, file=out)
