"""The export formats, and the entry that writes any of them."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from saccade.distribution import install_command
from saccade.errors import RunError
from saccade.formats.exported import ExportableRun, export_lock


@dataclass(frozen=True)
class Format:
    """An export format. `module` is the module of this package that writes it, with `why_not(recipe)` and
    `write(run, folder)`. `write_packages` are needed to write an export and `run_packages` to run it; `extra` installs
    both."""

    module: str
    write_packages: tuple[str, ...] = ()
    run_packages: tuple[str, ...] = ()
    extra: str = ""


FORMATS = {
    "hf": Format("marian"),
    "ctranslate2": Format("ctranslate2", ("ctranslate2",), ("ctranslate2",), extra="fast"),
    "onnx": Format("onnx", ("onnx", "onnxruntime", "onnxscript"), ("onnxruntime",), extra="onnx"),
}


class Unsupported(RunError):
    """A format or an engine cannot do what was requested."""


def require(packages: tuple[str, ...], extra: str) -> None:
    """Raise `Unsupported` for the first package that is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise Unsupported(f"{package} is not installed; run {install_command(extra)}")


def writer_of(kind: str, run: ExportableRun) -> ModuleType:
    """The module that writes the run's model in this format; `Unsupported` with the reason if it cannot."""
    require(FORMATS[kind].write_packages, FORMATS[kind].extra)
    module = importlib.import_module(f"saccade.formats.{FORMATS[kind].module}")
    reason = module.why_not(run.recipe)
    if reason:
        raise Unsupported(reason)
    return module


def export(
    kind: str, run: ExportableRun, folder: Path, quantization: str, report: Callable[[str], None] = lambda text: None
) -> None:
    """Export the run's model. Only CTranslate2 uses `quantization`; `report` receives progress messages."""
    from saccade.devices import on_cpu  # here, because it imports torch, which an engine without torch does not need

    module = writer_of(kind, run)
    with export_lock(folder.parent), on_cpu(run.model):
        report(f"exporting to {folder}; later calls will use this export")
        module.write(run, folder, *((quantization,) if kind == "ctranslate2" else ()))
