"""The formats a model can go out in, and the one way to write any of them."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from saccade.errors import RunError
from saccade.formats.exported import ExportableRun, exporting


@dataclass(frozen=True)
class Format:
    """`module` of this package has `why_not(recipe)` and `write(run, folder)`; to run what is written, and to write it,
    it needs packages of an `extra`."""

    module: str
    runs: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    extra: str = ""


FORMATS = {
    "hf": Format("marian"),
    "ctranslate2": Format("ctranslate2", runs=("ctranslate2",), writes=("ctranslate2",), extra="fast"),
    "onnx": Format("onnx", runs=("onnxruntime",), writes=("onnx", "onnxruntime", "onnxscript"), extra="onnx"),
}


class Unsupported(RunError):
    """A format or an engine that cannot do what is wished."""


def require(packages: tuple[str, ...], extra: str) -> None:
    """Refuse what is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise Unsupported(f"{package} is not installed: pip install 'saccade[{extra}]'")


def writer_of(kind: str, run: ExportableRun) -> ModuleType:
    """The module that writes this run's model, or the reason why none can."""
    require(FORMATS[kind].writes, FORMATS[kind].extra)
    module = importlib.import_module(f"saccade.formats.{FORMATS[kind].module}")
    reason = module.why_not(run.recipe)
    if reason:
        raise Unsupported(reason)
    return module


def export(
    kind: str, run: ExportableRun, folder: Path, quantization: str, say: Callable[[str], None] = lambda text: None
) -> None:
    """Write the model; only CTranslate2 knows another precision than its own."""
    module = writer_of(kind, run)
    with exporting(folder.parent):
        say(f"making {folder}: once, for this and every later call")
        module.write(run, folder, *((quantization,) if kind == "ctranslate2" else ()))
