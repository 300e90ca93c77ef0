"""`saccade evaluate`: scores of a run, or of a file of translations."""

import json
from typing import TYPE_CHECKING

from saccade.cli.app import Checkpoint, Device, InputFile, Json, UsageError, app, must_be_run, must_exist
from saccade.cli.flags import SearchFlags
from saccade.errors import DataError

if TYPE_CHECKING:
    from saccade.tasks.task import Task


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
    device: Device = "auto",
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
        from saccade.metrics.translation import score, score_lines

        pairs = _read_pairs(hyp, ref)
        scores = score([output for output, _ in pairs], [reference for _, reference in pairs]).plain()
    else:
        from saccade.api import load

        loaded = load(run, checkpoint, device=device)
        score_lines = loaded.task.score_lines
        _check_flags(loaded.task, bool(src) or search != SearchFlags(), bool(labels))
        decode = search.settings(loaded.recipe.decode)
        pairs = _read_pairs(src, ref) if src else None
        scores = loaded.evaluate(pairs, decode=decode, labels=tuple(labels.split(",")) if labels else ())
    print(json.dumps(scores, ensure_ascii=False, indent=1) if json_ else "\n".join(score_lines(scores)))


def _read_pairs(first: str, ref: str) -> list[tuple[str, str]]:
    from saccade.lines import file_lines
    from saccade.metrics.pairs import paired

    pairs = paired(list(file_lines(first)), list(file_lines(ref)), first, ref)
    if not pairs:
        raise DataError(f"{ref}: the file is empty; write one reference per line")
    return pairs


def _check_flags(task: "Task", has_text_flags: bool, has_label_flags: bool) -> None:
    from saccade.tasks import kinds_with

    if has_text_flags and not task.text_to_text:
        raise UsageError(
            f"--src, --ref, --beam, --length-penalty and --ratio are for {kinds_with('text_to_text')} runs; this run "
            f"{task.does}"
        )
    if has_label_flags and not task.has_labels:
        raise UsageError(f"--labels is for {kinds_with('has_labels')} runs; this run {task.does}")
