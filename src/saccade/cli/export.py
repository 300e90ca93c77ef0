"""`saccade export` and `saccade import`: convert models to and from other formats."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from saccade.cli.app import Checkpoint, Quantization, UsageError, app, must_be_run

OutputFolder = Annotated[str, Parameter(name=("--output", "-o"))]


@app.command
def export(
    run: str,
    /,
    *,
    to: Literal["hf", "ctranslate2", "onnx"],
    output: OutputFolder = "",
    quantization: Quantization | None = None,
    checkpoint: Checkpoint = "auto",
) -> None:
    """Export a run's model for transformers (as Marian or Pegasus), CTranslate2 or ONNX.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    to: str
        The format; hf is a folder for Hugging Face transformers.
    output: str
        The output folder; the default is RUN/exports/FORMAT.
    quantization: str
        With --to ctranslate2: the default is float32.
    """
    if quantization and to != "ctranslate2":
        raise UsageError("--quantization is only for --to ctranslate2; correct --to, or leave --quantization out")
    must_be_run(run)
    from saccade.api import load
    from saccade.console import console
    from saccade.errors import RunError
    from saccade.formats.engines import folder_name
    from saccade.formats.export import Unsupported
    from saccade.formats.export import export as write
    from saccade.formats.exported import EXPORTS
    from saccade.tasks.translation import Translation

    loaded = load(run, checkpoint, device="cpu")
    loaded.require(Translation)
    chosen_quantization = quantization or "float32"
    folder = Path(output) if output else Path(run) / EXPORTS / folder_name(to, chosen_quantization)
    _must_be_writable(folder)
    try:
        write(to, loaded, folder, chosen_quantization)
    except Unsupported as reason:
        raise RunError(f"{run}: cannot be exported to {to}: {reason}") from None
    console().print(f"wrote {folder}", markup=False)


def _must_be_writable(folder: Path) -> None:
    """Raise a UsageError unless the folder is new, empty, or an earlier export."""
    from saccade.formats.exported import was_written_by_export

    if folder.is_dir() and any(folder.iterdir()) and not was_written_by_export(folder):
        raise UsageError(
            f"{folder}: already exists and was not written by `saccade export`; choose another folder with -o DIR"
        )
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; choose another folder with -o DIR")


@app.command(name="import")
def import_(
    format_: Annotated[Literal["hf"], Parameter(name="format")], folder: str, /, *, output: OutputFolder
) -> None:
    """Import a model of another format as a run, for translate, evaluate, serve and view.

    Parameters
    ----------
    format_: str
        hf: a folder of a Marian model for Hugging Face transformers.
    folder: str
        The folder of the model.
    output: str
        The folder of the new run, which must be new or empty.
    """
    path = Path(output)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{output}: already exists; choose another folder with -o RUN")
    if not (Path(folder) / "config.json").is_file():
        raise UsageError(
            f"{folder}: is not a model for transformers: it has no config.json; give the folder that contains this file"
        )
    from saccade.console import console
    from saccade.formats.marian_import import import_marian

    import_marian(Path(folder), path)
    console().print(f"wrote {output}", markup=False)
