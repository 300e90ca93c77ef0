"""`saccade evaluate`: scores of a run, or of a file."""

import json
from typing import Annotated, Any

from saccade.cli.app import Checkpoint, File, Json, UsageError, app, must_be_run, must_exist
from saccade.cli.flags import SearchFlags


@app.command
def evaluate(
    run: str = "",
    /,
    *,
    src: Annotated[str, File] = "",
    ref: Annotated[str, File] = "",
    hyp: Annotated[str, File] = "",
    labels: str = "",
    search: SearchFlags = SearchFlags(),
    checkpoint: Checkpoint = "auto",
    json_: Json = False,
) -> None:
    """Score a run on its test data; a translator also on --src and --ref, or two files with --hyp and --ref.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    src: str
        A file of sources.
    ref: str
        A file of references.
    hyp: str
        A file of translations to score without a run.
    labels: str
        Of a run that tags or classifies: count only what truly has one of these labels, such as 1,2,3.
    """
    if bool(run) == bool(hyp):
        raise UsageError("evaluate takes either a RUN, or --hyp FILE and --ref FILE")
    if (bool(src) != bool(ref)) if run else (bool(src) or not ref):
        raise UsageError("--src FILE and --ref FILE go together, and so do --hyp FILE and --ref FILE")
    if hyp and search != SearchFlags():
        raise UsageError("--beam, --length-penalty and --ratio need a RUN")
    if hyp and labels:
        raise UsageError("--labels needs a RUN")
    search.check()
    must_exist(src, ref, hyp)
    if run:
        must_be_run(run)

    from saccade.lines import file_lines

    if hyp:
        from saccade.metrics.translation import score

        figures = score(list(file_lines(hyp)), list(file_lines(ref))).plain()
    else:
        from saccade.api import load
        from saccade.metrics.pairs import paired

        loaded = load(run, checkpoint)
        _check_flags(loaded.task.writes, bool(src) or search != SearchFlags(), bool(labels))
        decode = search.settings(loaded.recipe.decode)
        pairs = paired(list(file_lines(src)), list(file_lines(ref)), src, ref) if src else None
        figures = loaded.evaluate(pairs, decode=decode, labels=tuple(labels.split(",")) if labels else ())
    readable = _readable_labels if "confusion" in figures else _readable
    print(json.dumps(figures, ensure_ascii=False, indent=1) if json_ else "\n".join(readable(figures)))


def _check_flags(writes: bool, of_translators: bool, of_labels: bool) -> None:
    if of_translators and not writes:
        raise UsageError("--src, --ref and flags of the search are for runs that translate; this one says labels")
    if of_labels and writes:
        raise UsageError("--labels is for runs that tag or classify; this one translates")


def _readable(figures: dict[str, Any]) -> list[str]:
    interval = figures["interval"]
    names = {"bleu": "BLEU", "chrf": "chrF", "bleu_lc_tok": "BLEU, lower-cased, tokenised"}
    lines = [
        f"{label:<30} {figures[key]:6.2f}   95 % {interval[key][0]:.2f} to {interval[key][1]:.2f}"
        f"   {figures['signatures'][key]}"
        for key, label in names.items()
    ]
    lines.append(f"{'exact match':<30} {figures['exact_match']:6.2f} %")
    for key in ("perplexity", "tokens_per_second", "sentences_per_second"):
        if key in figures:
            lines.append(f"{key.replace('_', ' '):<30} {figures[key]:6.2f}")
    return [*lines, f"{'sentences':<30} {figures['sentences']:6,}"]


def _readable_labels(figures: dict[str, Any]) -> list[str]:
    import numpy as np

    from saccade.metrics.labels import Confusion

    each = figures["per_label"]
    width = max(len("label"), *map(len, each))
    over = f"   over {', '.join(figures['over'])}"
    chosen = [
        f"{'accuracy':<20} {figures['accuracy']:6.2f} %{over}",
        f"{'macro F1':<20} {figures['macro_f1']:6.2f} %{over}",
        f"{'labels counted':<20} {figures['count']:,}{over}",
        "",
    ]
    matrix = Confusion(tuple(figures["labels"]), np.array(figures["confusion"]))
    table = [
        f"{label:<{width}} {facts['precision']:9.2f} {facts['recall']:9.2f} {facts['f1']:9.2f} {facts['count']:9,}"
        for label, facts in each.items()
    ]
    return [
        *(chosen if figures["over"] else []),
        f"{'accuracy':<20} {matrix.accuracy():6.2f} %",
        f"{'macro F1':<20} {matrix.macro_f1():6.2f} %",
        f"{'labels counted':<20} {int(matrix.counts.sum()):,}",
        "",
        f"{'label':<{width}} {'precision':>9} {'recall':>9} {'F1':>9} {'count':>9}",
        *table,
        "",
        *matrix.lines(),
    ]
