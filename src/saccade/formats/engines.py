"""The choice of an engine. `auto` takes CTranslate2 if it is installed and can run the model, otherwise torch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from saccade.config import build
from saccade.decode.engine import DecodeConfig, Engine
from saccade.errors import RunError
from saccade.formats.export import FORMATS, Unsupported, export, require
from saccade.formats.exported import EXPORTS, ExportableRun, ExportedModel, is_up_to_date, read_exported
from saccade.runs.checkpoints import Checkpoints

ENGINES = ("auto", "torch", "ctranslate2", "onnx")
QUANTIZATIONS = ("float32", "int8")  # of CTranslate2
FASTER_THAN_TORCH = ("ctranslate2",)  # the engines that `auto` tries first


@dataclass(frozen=True)
class EngineRequest:
    """The run that an engine is needed for, and how it will be used.

    `load` loads the run with torch. It is not called if the engine is CTranslate2 and the run has an up-to-date export.
    `decode_settings` maps the run's decode settings to those of this request. `has_prefixes`: outputs must begin with
    given texts. `report` receives progress messages.
    """

    run: Path
    checkpoint: str
    load: Callable[[], ExportableRun]
    decode_settings: Callable[[DecodeConfig], DecodeConfig] = lambda decode: decode
    has_prefixes: bool = False
    quantization: str = "float32"
    report: Callable[[str], None] = lambda text: None

    @cached_property
    def torch_engine(self) -> Engine:
        """The torch engine, which can run every model."""
        from saccade.decode.torch_engine import torch_engine

        run = self.load()
        return torch_engine(run.model, run.codecs.source, run.codecs.target)


@dataclass(frozen=True)
class ChosenEngine:
    """An engine, and the decode settings to use with it."""

    name: str
    engine: Engine
    decode: DecodeConfig


def choose(name: str, request: EngineRequest) -> ChosenEngine:
    """The engine of this name. For `auto`, the first of `FASTER_THAN_TORCH` that can serve the request, otherwise
    torch; its name is reported."""
    if name == "torch":
        return _torch(request)
    if name != "auto":
        try:
            return _exported(name, request)
        except Unsupported as error:
            raise Unsupported(f"{error}; or use the torch engine (--engine torch)") from None
    reason = ""
    for candidate in FASTER_THAN_TORCH:
        try:
            chosen = _exported(candidate, request)
        except Unsupported as error:
            reason = reason or str(error)
        else:
            request.report(f"engine: {chosen.name}")
            return chosen
    chosen = _torch(request)
    request.report(f"engine: torch ({reason})")
    return chosen


def _torch(request: EngineRequest) -> ChosenEngine:
    return ChosenEngine("torch", request.torch_engine, request.decode_settings(request.load().recipe.decode))


def _exported(name: str, request: EngineRequest) -> ChosenEngine:
    """An engine that runs an exported model; the model is exported if there is no current export."""
    require(FORMATS[name].run_packages, FORMATS[name].extra)
    folder = request.run / EXPORTS / folder_name(name, request.quantization)
    engine, decode = OPENERS[name](folder, request)
    return ChosenEngine(folder.name, engine, decode)


def folder_name(kind: str, quantization: str) -> str:
    """The name of an exported folder inside a run."""
    return f"{kind}-{quantization}" if kind == "ctranslate2" else kind


def _open_ctranslate2(folder: Path, request: EngineRequest) -> tuple[Engine, DecodeConfig]:
    """The run is loaded only if there is no current export."""
    from saccade.formats.ctranslate2_engine import CTranslate2Engine, why_not_search

    def check(decode: DecodeConfig) -> DecodeConfig:
        reason = why_not_search(build(decode.search, "decode.search"), request.has_prefixes)
        if reason:
            raise Unsupported(reason)
        return decode

    exported = _read_current(folder, request)
    if exported is None:
        check(request.decode_settings(request.load().recipe.decode))  # before the export, which takes longer
        export_for_engine("ctranslate2", folder, request)
        exported = read_exported(folder)
    decode = check(request.decode_settings(exported.config.decode))
    return CTranslate2Engine(folder, exported, lambda: request.torch_engine), decode


def _open_onnx(folder: Path, request: EngineRequest) -> tuple[Engine, DecodeConfig]:
    from saccade.formats import onnx

    run = request.load()
    if not is_up_to_date(folder, request.run, run.checkpoint):
        export_for_engine("onnx", folder, request)
    return onnx.open(folder), request.decode_settings(run.recipe.decode)


OPENERS = {"ctranslate2": _open_ctranslate2, "onnx": _open_onnx}


def _read_current(folder: Path, request: EngineRequest) -> ExportedModel | None:
    """An earlier export, if it is undamaged and was made from the current files of the run."""
    checkpoint = Checkpoints(request.run / "checkpoints").find(request.checkpoint)
    if not is_up_to_date(folder, request.run, checkpoint):
        return None
    try:
        return read_exported(folder)
    except RunError as error:
        request.report(f"warning: an earlier export cannot be used and is replaced: {error}")
        return None


def export_for_engine(kind: str, folder: Path, request: EngineRequest) -> None:
    """Export the model for its engine; `Unsupported` if that fails."""
    try:
        export(kind, request.load(), folder, request.quantization, request.report)
    except RunError as error:
        raise Unsupported(str(error)) from None
