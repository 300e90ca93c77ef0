"""`saccade report`: a run's report.html."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from saccade.cli.app import Checkpoint, app, must_be_run

if TYPE_CHECKING:
    from saccade.api import Run
    from saccade.recipe import Recipe
    from saccade.runs.folder import RunFolder
    from saccade.view.findings import Evaluation
    from saccade.view.history import ValidationRecord
    from saccade.view.maps import AttentionMaps


@app.command
def report(
    run: str,
    /,
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"))] = "",
    checkpoint: Checkpoint = "auto",
    quick: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Draw curves, scores, best and worst sentences, attention, config and environment of a run as one offline page.

    Parameters
    ----------
    run: str
        The folder of a run, finished or not.
    output: str
        The page to write; report.html in the run if left out.
    quick: bool
        Leave out what needs the test data, unless it was found before.
    """
    must_be_run(run)
    from saccade.console import console

    path = draw_report(Path(run), Path(output) if output else None, checkpoint, quick=quick)
    console().print(f"wrote {path}: open it in a browser", markup=False)


def draw_report(path: Path, output: Path | None = None, checkpoint: str = "auto", *, quick: bool) -> Path:
    """Gather what there is to tell of a run, and write it down."""
    from saccade.api import load
    from saccade.recipe import task_of
    from saccade.runs.folder import RunFolder
    from saccade.view.history import being_trained, read_history
    from saccade.view.report import REPORT_FILE, ReportData, write_report

    folder = RunFolder(path)
    recipe, history = folder.config(), read_history(folder)
    codecs = folder.codecs(recipe)
    begun = checkpoint != "auto" or any(folder.checkpoints.folder.glob("step-*"))
    run = load(path, checkpoint) if begun else None
    manifest = {} if run is None else _manifest(run)
    findings, unjudged = (None, NOT_BEGUN) if run is None else _findings(run, manifest, quick)
    maps, unseen = ([], NOT_BEGUN) if run is None else _maps(run, history.at(manifest["step"]))
    facts = ReportData(
        run=folder,
        recipe=recipe,
        history=history,
        checkpoint=None if run is None else run.checkpoint.name,
        manifest=manifest,
        parameters=None if codecs is None else _parameters(folder, recipe, codecs),
        sizes="" if codecs is None else task_of(recipe).describe(codecs),
        training=being_trained(folder),
        findings=findings,
        unjudged=unjudged,
        maps=maps,
        unseen=unseen,
    )
    return write_report(facts, output or path / REPORT_FILE)


NOT_BEGUN = "This needs a finished checkpoint, and there is none yet."


def _manifest(run: "Run") -> dict[str, Any]:
    """What the checkpoint says of itself; what an average does not know, of the one before it."""
    from saccade.errors import RunError
    from saccade.runs.files import verify

    manifest, latest = verify(run.checkpoint), run.folder.checkpoints.marked("latest")
    if type(manifest.get("step")) is not int:
        raise RunError(f"{run.checkpoint / 'manifest.json'}: is damaged: it names no step")
    return verify(latest) | manifest if "averaged" in manifest and latest else manifest


def _parameters(folder: "RunFolder", recipe: "Recipe", codecs: Any) -> int:
    """Counted without taking memory for them."""
    import torch

    with torch.device("meta"):
        return sum(each.numel() for each in folder.model(recipe, codecs).parameters())


def _findings(run: "Run", manifest: dict[str, Any], quick: bool) -> tuple["Evaluation | None", str]:
    """What was found on the test data before, or is found now; or why there is nothing."""
    from saccade.console import console, program
    from saccade.errors import SaccadeError
    from saccade.view.findings import EVALUATION_FILE, cache_evaluation, cache_key, cached_evaluation

    key = cache_key(run.folder, run.recipe, manifest)
    findings = cached_evaluation(run.folder, key)
    if findings is not None:
        return findings, ""
    if quick:
        command = f"{program()} report {shlex.quote(str(run.folder.path))}"
        return None, f"Not worked out here: `{command}` does it, and keeps it."
    try:
        findings = _judged(run)
    except SaccadeError as error:
        console().print(f"warning: without scores of test data: {error}", markup=False)
        return None, f"There are no scores of test data: {error}"
    try:
        cache_evaluation(run.folder, key, findings)
    except OSError as error:
        console().print(f"warning: {EVALUATION_FILE} is not kept: {error.strerror}", markup=False)
    return findings, ""


def _judged(run: "Run") -> "Evaluation":
    """Let the run loose on its test data."""
    from saccade.console import track
    from saccade.decode.engine import in_order
    from saccade.tasks.labeling import Labeling
    from saccade.view.findings import evaluate_labels, evaluate_translations, evaluation_rows, evaluation_split

    split, rows, task = evaluation_split(run.recipe), evaluation_rows(run.folder, run.recipe), run.task
    if isinstance(task, Labeling):
        known = task.drop_unknown_labels(rows, run.codecs, run.recipe.data.skip_bad)
        found = task.predict(run.model, run.codecs, known, run.recipe.data.longest, run.recipe.decode.batch_tokens)
        return evaluate_labels(split, task, known, found, run.codecs.source)
    outputs = run.engine.generate([row.source for row in rows], run.recipe.decode)
    texts = [best[0].text for best in in_order(track(outputs, len(rows), "translating"))]
    return evaluate_translations(split, rows, texts, run.codecs.source)


def _maps(run: "Run", validated: "ValidationRecord | None") -> tuple[list["AttentionMaps"], str]:
    """Attention over what the checkpoint wrote for the samples of its validation; or why there is none."""
    if not run.task.writes:
        return [], "Attention can be shown of runs that translate only; this one says labels."
    if validated is None or not validated.samples:
        return [], "No validation has shown samples yet."
    maps = [run.attention(sample.source, sample.output) for sample in validated.samples]
    return ([], "This model has no attention.") if not any(maps) else (maps, "")
