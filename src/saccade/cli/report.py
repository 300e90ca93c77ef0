"""`saccade report`: writes a run's report.html."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from saccade.cli.app import Checkpoint, Device, app, must_be_run

if TYPE_CHECKING:
    from saccade.api import Run
    from saccade.data.codecs import AnyCodecs
    from saccade.recipe import Recipe
    from saccade.runs.folder import RunFolder
    from saccade.runs.history import ValidationRecord
    from saccade.tasks.evaluation import Evaluation
    from saccade.view.maps import AttentionMaps

NO_CHECKPOINT = "Shown as soon as the run has a finished checkpoint; there is none yet."


@app.command
def report(
    run: str,
    /,
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"))] = "",
    checkpoint: Checkpoint = "auto",
    device: Device = "auto",
    quick: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write the curves, scores, best and worst outputs, attention, config and environment of a run as one offline page.

    Parameters
    ----------
    run: str
        The folder of a run, finished or not.
    output: str
        The page to write; default: report.html in the run.
    quick: bool
        Do not evaluate on the test data; show stored scores if there are any.
    """
    must_be_run(run)
    from saccade.console import console

    path = draw_report(Path(run), Path(output) if output else None, checkpoint, device, quick=quick)
    console().print(f"wrote {path}: open it in a browser", markup=False)


def draw_report(
    path: Path, output: Path | None = None, checkpoint: str = "auto", device: Device = "auto", *, quick: bool
) -> Path:
    """Collect what is known of a run and write the report."""
    from saccade.api import load
    from saccade.runs.folder import RunFolder
    from saccade.runs.history import is_being_trained, read_history
    from saccade.view.report import REPORT_FILE, ReportData, write_report

    folder = RunFolder(path)
    recipe, history = folder.config(), read_history(folder)
    codecs = folder.codecs(recipe)
    has_checkpoint = checkpoint != "auto" or any(folder.checkpoints.folder.glob("step-*"))
    run = load(path, checkpoint, device=device) if has_checkpoint else None
    manifest = {} if run is None else _manifest(run)
    evaluation, no_evaluation_reason = (None, NO_CHECKPOINT) if run is None else _evaluation(run, manifest, quick)
    maps, no_maps_reason = ([], NO_CHECKPOINT) if run is None else _maps(run, history.validation_at(manifest["step"]))
    data = ReportData(
        run=folder,
        recipe=recipe,
        history=history,
        checkpoint=None if run is None else run.checkpoint.name,
        manifest=manifest,
        parameters=None if codecs is None else _parameters(folder, recipe, codecs),
        vocabulary_sizes="" if codecs is None else recipe.built_task.describe(codecs),
        being_trained=is_being_trained(folder),
        evaluation=evaluation,
        no_evaluation_reason=no_evaluation_reason,
        maps=maps,
        no_maps_reason=no_maps_reason,
    )
    return write_report(data, output or path / REPORT_FILE)


def _manifest(run: "Run") -> dict[str, Any]:
    """The checkpoint's manifest. An average takes missing entries, such as threads, from the latest checkpoint."""
    from saccade.errors import RunError

    checkpoints = run.folder.checkpoints
    manifest, latest = checkpoints.verify(run.checkpoint), checkpoints.marked("latest")
    if type(manifest.get("step")) is not int:
        raise RunError(f"{run.checkpoint / 'manifest.json'}: is damaged: it has no step")
    return checkpoints.verify(latest) | manifest if "averaged" in manifest and latest else manifest


def _parameters(folder: "RunFolder", recipe: "Recipe", codecs: "AnyCodecs") -> int:
    """The number of parameters, counted on the meta device."""
    import torch

    with torch.device("meta"):
        return sum(parameter.numel() for parameter in folder.model(recipe, codecs).parameters())


def _evaluation(run: "Run", manifest: dict[str, Any], quick: bool) -> tuple["Evaluation | None", str]:
    """The stored evaluation of the checkpoint, or a new one; or None and the reason."""
    from saccade.console import console, program
    from saccade.errors import SaccadeError
    from saccade.runs.evaluations import EVALUATION_FILE, evaluation_key, load_evaluation, store_evaluation

    key = evaluation_key(run.folder, run.recipe, manifest)
    evaluation = load_evaluation(run.folder, key)
    if evaluation is not None:
        return evaluation, ""
    if quick:
        command = f"{program()} report {shlex.quote(str(run.folder.path))}"
        return None, f"Not evaluated yet: run `{command}` to evaluate on the test data and store the scores."
    try:
        evaluation = run.evaluate_for_report()
    except SaccadeError as error:
        console().print(f"warning: the report has no scores on test data: {error}", markup=False)
        return None, f"There are no scores on test data: {error}"
    try:
        store_evaluation(run.folder, key, evaluation)
    except OSError as error:
        console().print(f"warning: {EVALUATION_FILE} could not be written: {error.strerror}", markup=False)
    return evaluation, ""


def _maps(run: "Run", validation: "ValidationRecord | None") -> tuple[list["AttentionMaps"], str]:
    """Attention maps over the outputs of the checkpoint's validation samples; or none and the reason."""
    from saccade.tasks import kinds_with

    if not run.task.text_to_text:
        return [], f"Attention can be shown for {kinds_with('text_to_text')} runs only; this run {run.task.does}."
    if validation is None or not validation.samples:
        return [], "No validation has recorded samples yet."
    maps = [run.attention(sample.source, sample.output) for sample in validation.samples]
    return ([], "This model has no attention.") if not any(maps) else (maps, "")
