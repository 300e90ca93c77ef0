"""`saccade evaluate`: scores of a run, or of a file of translations."""

import json
from typing import Any

from saccade.cli.app import Checkpoint, InputFile, Json, UsageError, app, must_be_run, must_exist
from saccade.cli.flags import SearchFlags
from saccade.errors import DataError


@app.command
def evaluate(
    run: str = "",
    /,
    *,
    src: InputFile = "",
    ref: InputFile = "",
    hyp: InputFile = "",
    labels: str = "",
    search: SearchFlags = SearchFlags(),
    checkpoint: Checkpoint = "auto",
    json_: Json = False,
) -> None:
    """Evaluate a run on its test data or on --src and --ref, or score a file of translations with --hyp and --ref.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    src: str
        A file of source sentences.
    ref: str
        A file of reference translations.
    hyp: str
        A file of translations to score, without a run.
    labels: str
        For tagging and classification runs: compute accuracy and macro F1 over these labels only, such as 1,2,3.
    """
    if bool(run) == bool(hyp):
        raise UsageError("evaluate takes either a RUN, or --hyp FILE and --ref FILE")
    if (bool(src) != bool(ref)) if run else (bool(src) or not ref):
        raise UsageError(
            "evaluate takes --src FILE and --ref FILE together with a RUN, or --hyp FILE and --ref FILE without one"
        )
    if hyp and search != SearchFlags():
        raise UsageError("--beam, --length-penalty and --ratio need a RUN")
    if hyp and labels:
        raise UsageError("--labels needs a RUN")
    search.check()
    must_exist(src, ref, hyp)
    if run:
        must_be_run(run)

    if hyp:
        from saccade.metrics.translation import score

        pairs = _read_pairs(hyp, ref)
        scores = score([output for output, _ in pairs], [reference for _, reference in pairs]).plain()
    else:
        from saccade.api import load
        from saccade.tasks.task import generates

        loaded = load(run, checkpoint)
        _check_flags(generates(loaded.task), bool(src) or search != SearchFlags(), bool(labels))
        decode = search.settings(loaded.recipe.decode)
        pairs = _read_pairs(src, ref) if src else None
        scores = loaded.evaluate(pairs, decode=decode, labels=tuple(labels.split(",")) if labels else ())
    lines = _label_lines(scores) if "confusion" in scores else _translation_lines(scores)
    print(json.dumps(scores, ensure_ascii=False, indent=1) if json_ else "\n".join(lines))


def _read_pairs(first: str, ref: str) -> list[tuple[str, str]]:
    from saccade.lines import file_lines
    from saccade.metrics.pairs import paired

    pairs = paired(list(file_lines(first)), list(file_lines(ref)), first, ref)
    if not pairs:
        raise DataError(f"{ref}: the file is empty; write one reference per line")
    return pairs


def _check_flags(translates: bool, has_translation_flags: bool, has_label_flags: bool) -> None:
    if has_translation_flags and not translates:
        raise UsageError(
            "--src, --ref, --beam, --length-penalty and --ratio are for translation runs; this run predicts labels"
        )
    if has_label_flags and translates:
        raise UsageError("--labels is for tagging and classification runs; this run translates")


def _translation_lines(scores: dict[str, Any]) -> list[str]:
    interval = scores["interval"]
    names = {"bleu": "BLEU", "chrf": "chrF", "bleu_lowercase": "BLEU, lowercased"}
    lines = [
        f"{label:<30} {scores[key]:6.2f}   95 % {interval[key][0]:.2f} to {interval[key][1]:.2f}"
        f"   {scores['signatures'][key]}"
        for key, label in names.items()
    ]
    lines.append(f"{'exact match':<30} {scores['exact_match']:6.2f} %")
    for key in ("perplexity", "tokens_per_second", "sentences_per_second"):
        if key in scores:
            lines.append(f"{key.replace('_', ' '):<30} {scores[key]:6.2f}")
    return [*lines, f"{'sentences':<30} {scores['sentences']:6,}"]


def _label_lines(scores: dict[str, Any]) -> list[str]:
    import numpy as np

    from saccade.metrics.labels import Confusion

    per_label = scores["per_label"]
    width = max(len("label"), *map(len, per_label))
    only = f"   only {', '.join(scores['selected_labels'])}"
    selected_lines = [
        f"{'accuracy':<20} {scores['accuracy']:6.2f} %{only}",
        f"{'macro F1':<20} {scores['macro_f1']:6.2f} %{only}",
        f"{'labels counted':<20} {scores['count']:,}{only}",
        "",
    ]
    matrix = Confusion(tuple(scores["labels"]), np.array(scores["confusion"]))
    table = [
        f"{label:<{width}} {facts['precision']:9.2f} {facts['recall']:9.2f} {facts['f1']:9.2f} {facts['count']:9,}"
        for label, facts in per_label.items()
    ]
    return [
        *(selected_lines if scores["selected_labels"] else []),
        f"{'accuracy':<20} {matrix.accuracy():6.2f} %",
        f"{'macro F1':<20} {matrix.macro_f1():6.2f} %",
        f"{'labels counted':<20} {int(matrix.counts.sum()):,}",
        "",
        f"{'label':<{width}} {'precision':>9} {'recall':>9} {'F1':>9} {'count':>9}",
        *table,
        "",
        *matrix.lines(),
    ]
