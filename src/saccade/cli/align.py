"""`saccade align`: word alignments from attention or from a statistical aligner, and their scores."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import cyclopts
from cyclopts import Parameter

from saccade.cli.app import (
    Checkpoint,
    Device,
    InputFile,
    Json,
    OutputFile,
    UsageError,
    app,
    must_be_run,
    must_exist,
    must_have_folder,
)
from saccade.errors import plural

if TYPE_CHECKING:
    from saccade.api import Run
    from saccade.attention_alignment import AlignmentSettings
    from saccade.data.links import GradedLinks, Links

align = cyclopts.App(name="align", help="Align words by attention or by a statistical aligner, and score alignments.")
app.command(align)

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
IndexBase = Annotated[
    Literal["auto", "0", "1"], Parameter(help="The index of the first word; auto determines it from the file.")
]
Indices = Annotated[tuple[int, ...], Parameter(negative="", consume_multiple=True)]
LAYER_HELP = (
    "Cross-attention layers to use, from 0. Without --layer and --head, the heads are those that "
    "`saccade align search` stored in the run, else the guided head, else all heads of the second to last layer."
)


@align.default
def attention(
    run: str,
    *,
    src: InputFile,
    tgt: InputFile,
    output: OutputFile = "-",
    back: str = "",
    symmetrize: Symmetrization = "grow-diag-final-and",
    layer: Annotated[Indices, Parameter(help=LAYER_HELP)] = (),
    head: Indices = (),
    step: Annotated[Literal["input", "output", ""], Parameter(show_choices=False)] = "",
    end: Annotated[Literal["ignore", "null", ""], Parameter(show_choices=False)] = "",
    checkpoint: Checkpoint = "auto",
    device: Device = "auto",
) -> None:
    """Align the words of two parallel files by a run's attention.

    Each output line is the alignment of one sentence pair, such as `0-0 1-2`
    (source-target word indices, from 0).

    Parameters
    ----------
    run: str
        The folder of a trained run that translates SRC into TGT.
    src: str
        Source sentences, one per line, words separated by spaces; plain or .gz.
    tgt: str
        Their translations.
    output: str
        The output file; - is stdout.
    back: str
        The folder of a run of the opposite direction; the alignments of both directions are then symmetrized.
    symmetrize: str
        With --back: how to combine the alignments of the two directions.
    head: int
        Heads to average, from 0; with --layer, the default is all heads of these layers.
    step: str
        input or output: use the attention of the decoder step whose input, or whose output, is the target word.
    end: str
        If the end symbol has the largest weight: ignore links the best source word, null leaves the word unaligned.
    """
    must_exist(src, tgt)
    must_have_folder(output)
    for folder in (run, back):
        if folder:
            must_be_run(folder)
    from saccade.aligners.symmetrize import SYMMETRIZE
    from saccade.api import load
    from saccade.data.links import pharaoh, transposed

    pairs = _read_pairs(src, tgt)
    options = {"step": step, "end": end}
    runs = [load(folder, checkpoint, device=device) for folder in (run, back) if folder]
    settings = [_settings(loaded, layer, head, options) for loaded in runs]
    alignments = _align(runs[0], pairs, settings[0])
    if back:
        reverse = _align(runs[1], [(target, source) for source, target in pairs], settings[1])
        directions = zip(alignments, reverse, strict=True)
        alignments = [SYMMETRIZE[symmetrize](forward, transposed(backward)) for forward, backward in directions]
    _write(map(pharaoh, alignments), output)


@align.command
def search(
    run: str,
    *,
    src: InputFile,
    tgt: InputFile,
    gold: InputFile,
    base: IndexBase = "auto",
    json_: Json = False,
    checkpoint: Checkpoint = "auto",
    device: Device = "auto",
) -> None:
    """Find the best settings for alignment by attention, and store them in the run.

    The settings are the heads, the step and the treatment of the end symbol;
    the best have the lowest alignment error rate on given alignments.

    Parameters
    ----------
    run: str
        The folder of a trained run that translates SRC into TGT.
    src: str
        Source sentences of the development data, one per line.
    tgt: str
        Their translations.
    gold: str
        Their alignments, from annotators or from `saccade align statistical`.
    """
    must_exist(src, tgt, gold)
    must_be_run(run)
    from saccade.api import load
    from saccade.attention_alignment import WordPairs, rank_settings
    from saccade.console import console

    pairs, loaded = _read_pairs(src, tgt), load(run, checkpoint, device=device)
    references = _read_links(gold, base, pairs)
    words = WordPairs.of(loaded.codecs, pairs)
    ranking = rank_settings(loaded.model, words, references, loaded.recipe.decode.batch_tokens)
    best, best_scores = ranking[0]
    loaded.folder.store_alignment_settings(
        best, {"aer": best_scores.aer, "pairs": len(pairs), "checkpoint": loaded.checkpoint.name}
    )
    if json_:
        print(json.dumps([settings.plain() | scores.plain() for settings, scores in ranking], indent=1))
        return
    for settings, scores in ranking[:10]:
        print(f"AER {scores.aer:5.2f}  precision {scores.precision:5.2f}  recall {scores.recall:5.2f}  {settings}")
    console().print(
        f"stored the best of {len(ranking)} settings in {run}; `saccade align` and `saccade translate` will use them",
        markup=False,
    )


@align.command
def score(
    *,
    gold: InputFile,
    system: InputFile,
    gold_base: IndexBase = "auto",
    system_base: IndexBase = "auto",
    json_: Json = False,
) -> None:
    """Score alignments against gold alignments: alignment error rate, precision, recall and F1, in percent.

    Parameters
    ----------
    gold: str
        Gold alignments, one line per sentence pair; `1p2` is a possible link, `1-2` a sure one.
    system: str
        The alignments to score.
    """
    must_exist(gold, system)
    from saccade.metrics.alignment import score_alignments

    references = _read_links(gold, gold_base)
    hypotheses = [links.possible for links in _read_links(system, system_base)]
    if len(hypotheses) != len(references):
        raise UsageError(
            f"{system}: has {plural(len(hypotheses), 'line')}, but {gold} has {len(references):,}; "
            "both need one line for each sentence pair"
        )
    scores = score_alignments(hypotheses, references)
    if json_:
        print(json.dumps(scores.plain(), indent=1))
        return
    print(f"AER {scores.aer:.2f}  precision {scores.precision:.2f}  recall {scores.recall:.2f}  F1 {scores.f1:.2f}")
    print(
        f"{plural(scores.links, 'link')}; gold: {scores.sure:,} sure and {scores.possible:,} possible links "
        f"in {plural(len(references), 'sentence pair')}"
    )


@align.command
def statistical(
    *,
    src: InputFile,
    tgt: InputFile,
    output: OutputFile = "-",
    symmetrize: Symmetrization | Literal["forward", "backward", "graded"] = "grow-diag-final-and",
) -> None:
    """Align words with a statistical aligner (IBM Model 1, then an HMM) that is trained on the two files themselves.

    Words are lowercased. --symmetrize forward and backward use only one
    direction. graded keeps all links, and those of only one direction are
    possible links (1p2); this is the best guide for training.

    Parameters
    ----------
    src: str
        Source sentences, one per line, words separated by spaces; plain or .gz.
    tgt: str
        Their translations.
    output: str
        The output file; - is stdout.
    symmetrize: str
        How to combine the alignments of the two directions.
    """
    must_exist(src, tgt)
    must_have_folder(output)
    from saccade.aligners.statistical import align_both_ways, align_one_way
    from saccade.aligners.symmetrize import SYMMETRIZE, graded
    from saccade.console import console
    from saccade.data.links import pharaoh, pharaoh_graded, transposed

    pairs, screen = _read_pairs(src, tgt), console()
    sources, targets = [s.lower().split() for s, _ in pairs], [t.lower().split() for _, t in pairs]

    def report(line: str) -> None:
        screen.print(line, markup=False)

    if symmetrize == "forward":
        lines = map(pharaoh, align_one_way(sources, targets, report=report))
    elif symmetrize == "backward":
        lines = (pharaoh(transposed(links)) for links in align_one_way(targets, sources, report=report))
    elif symmetrize == "graded":
        directions = align_both_ways(sources, targets, report)
        lines = (pharaoh_graded(graded(forward, backward)) for forward, backward in directions)
    else:
        directions = align_both_ways(sources, targets, report)
        lines = (pharaoh(SYMMETRIZE[symmetrize](forward, backward)) for forward, backward in directions)
    _write(lines, output)


# ── what the commands share ──


def _read_pairs(src: str, tgt: str) -> list[tuple[str, str]]:
    from saccade.lines import file_lines
    from saccade.metrics.pairs import paired

    return paired([*file_lines(src)], [*file_lines(tgt)], src, tgt)


def _read_links(name: str, base: str, pairs: Sequence[tuple[str, str]] | None = None) -> "list[GradedLinks]":
    """The alignments of a file. With `pairs`, check that each pair has one, and that its word indices exist."""
    from saccade.data.links import check_range, parse_all
    from saccade.lines import file_lines

    alignments = parse_all(file_lines(name), name, None if base == "auto" else int(base))
    if pairs is not None:
        if len(alignments) != len(pairs):
            raise UsageError(
                f"{name}: has {plural(len(alignments), 'line')}, but there are {plural(len(pairs), 'sentence pair')}; "
                "give one line for each pair"
            )
        for number, (links, (source, target)) in enumerate(zip(alignments, pairs, strict=True), 1):
            check_range(links.possible, len(source.split()), len(target.split()), f"{name}:{number}")
    return alignments


def _settings(run: "Run", layers: Sequence[int], heads: Sequence[int], options: dict[str, str]) -> "AlignmentSettings":
    """The alignment settings of a run with the given options replaced."""
    from dataclasses import replace

    from saccade.attention_alignment import with_heads

    base = with_heads(run.model, run.alignment_settings, layers, heads) if layers or heads else run.alignment_settings
    return replace(base, **{name: value for name, value in options.items() if value})


def _align(run: "Run", pairs: Sequence[tuple[str, str]], settings: "AlignmentSettings") -> "list[Links]":
    from saccade.console import track

    links = dict(track(run.align_as_completed(pairs, settings), len(pairs), "aligning"))
    return [links[row] for row in range(len(pairs))]


def _write(lines: Iterable[str], output: str) -> None:
    from saccade.lines import open_output

    with open_output(output) as out:
        for line in lines:
            print(line, file=out)
