"""`saccade evaluate`: scores of a run, or of a file."""

import json
from typing import Annotated, Any

from saccade.cli.flags import SearchFlags
from saccade.cli.program import Checkpoint, File, Json, UsageError, app, must_be_run, must_exist


@app.command
def evaluate(
    run: str = "",
    /,
    *,
    src: Annotated[str, File] = "",
    ref: Annotated[str, File] = "",
    hyp: Annotated[str, File] = "",
    search: SearchFlags = SearchFlags(),
    checkpoint: Checkpoint = "auto",
    json_: Json = False,
) -> None:
    """Score a run on its test text, on --src and --ref, or score two files with --hyp and --ref.

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
    """
    if bool(run) == bool(hyp):
        raise UsageError("evaluate takes either a RUN, or --hyp FILE and --ref FILE")
    if (bool(src) != bool(ref)) if run else (bool(src) or not ref):
        raise UsageError("--src FILE and --ref FILE go together, and so do --hyp FILE and --ref FILE")
    if hyp and search != SearchFlags():
        raise UsageError("--beam, --length-penalty and --ratio need a RUN")
    search.check()
    must_exist(src, ref, hyp)
    if run:
        must_be_run(run)

    from saccade.lines import file_lines

    if hyp:
        from saccade.measures.translation import score

        figures = score(list(file_lines(hyp)), list(file_lines(ref))).plain()
    else:
        from saccade.api import load
        from saccade.measures.pairs import paired

        loaded = load(run, checkpoint)
        decode = search.settings(loaded.recipe.decode)
        pairs = paired(list(file_lines(src)), list(file_lines(ref)), src, ref) if src else None
        figures = loaded.evaluate(pairs, decode=decode)
    print(json.dumps(figures, ensure_ascii=False, indent=1) if json_ else "\n".join(_readable(figures)))


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
