"""`saccade export` and `saccade import`: models out of Saccade and into it."""

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
    """Write a run's model for other programs: transformers (as Marian or Pegasus), CTranslate2 or ONNX.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    to: str
        hf is a folder for transformers.
    output: str
        Where to write; RUN/exports/FORMAT if left out.
    quantization: str
        With --to ctranslate2: float32 if left out.
    """
    if quantization and to != "ctranslate2":
        raise UsageError("--quantization is for --to ctranslate2")
    must_be_run(run)
    from saccade.api import load
    from saccade.console import console
    from saccade.errors import RunError
    from saccade.formats.engines import folder_name
    from saccade.formats.export import Unsupported
    from saccade.formats.export import export as write
    from saccade.formats.exported import EXPORTS
    from saccade.tasks.translation import Translation

    loaded = load(run, checkpoint)
    loaded.require(Translation)
    chosen = quantization or "float32"
    folder = Path(output) if output else Path(run) / EXPORTS / folder_name(to, chosen)
    _must_be_free(folder)
    try:
        write(to, loaded, folder, chosen)
    except Unsupported as unfit:
        raise RunError(f"{run}: cannot be exported to {to}: {unfit}") from None
    console().print(f"wrote {folder}", markup=False)


def _must_be_free(folder: Path) -> None:
    from saccade.formats.exported import was_written_by_export

    if folder.is_dir() and any(folder.iterdir()) and not was_written_by_export(folder):
        raise UsageError(f"{folder}: is there already and was not written by export; choose another -o DIR")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; choose another -o DIR")


@app.command(name="import")
def import_(format_: Literal["hf"], folder: str, /, *, output: OutputFolder) -> None:
    """Make a run of a model of other programs, to translate, evaluate, serve and view it here.

    Parameters
    ----------
    format_: str
        hf: a folder of a Marian model for transformers.
    folder: str
        The model's folder.
    output: str
        The run's folder, which must not be there yet.
    """
    path = Path(output)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{output}: is there already; choose another -o RUN")
    if not (Path(folder) / "config.json").is_file():
        raise UsageError(f"{folder}: is not a model of transformers: it has no config.json")
    from saccade.console import console
    from saccade.formats.marian_import import read

    read(Path(folder), path)
    console().print(f"wrote {output}", markup=False)
