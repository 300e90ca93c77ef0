"""Engines behind the one contract: `auto` takes the fastest that is installed and can run the model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from saccade.config import build
from saccade.decode.engine import DecodeConfig, Engine
from saccade.errors import RunError
from saccade.formats.export import FORMATS, Unsupported, export, require
from saccade.formats.exported import EXPORTS, ExportableRun, ExportedModel, is_up_to_date, read_exported
from saccade.runs.checkpoints import Checkpoints

ENGINES = ("auto", "torch", "ctranslate2", "onnx")
QUANTIZATIONS = ("float32", "int8")  # of CTranslate2
FASTEST = ("ctranslate2",)  # what `auto` tries before torch


@dataclass(frozen=True)
class EngineRequest:
    """What an engine is wanted for. `load` opens the run with torch, which is put off as long as it can be; `settle`
    makes the decode settings of the run's own; `forced`: outputs have prefixes."""

    run: Path
    checkpoint: str
    load: Callable[[], ExportableRun]
    decode_settings: Callable[[DecodeConfig], DecodeConfig] = lambda decode: decode
    forced: bool = False
    quantization: str = "float32"
    say: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class ChosenEngine:
    """An engine, and the decode settings that go with it."""

    name: str
    engine: Engine
    decode: DecodeConfig


def choose(wanted: str, wish: EngineRequest) -> ChosenEngine:
    """The engine of that name; for `auto` the fastest that will do, and say which."""
    if wanted == "torch":
        return _on_torch(wish)
    if wanted != "auto":
        return _deployed(wanted, wish)
    reason = ""
    for name in FASTEST:
        try:
            chosen = _deployed(name, wish)
        except Unsupported as unfit:
            reason = reason or str(unfit)
        else:
            wish.say(f"engine: {chosen.name}")
            return chosen
    chosen = _on_torch(wish)
    wish.say(f"engine: torch ({reason})")
    return chosen


def _on_torch(wish: EngineRequest) -> ChosenEngine:
    run = wish.load()
    return ChosenEngine("torch", run.on_torch, wish.decode_settings(run.recipe.decode))


def _deployed(name: str, wish: EngineRequest) -> ChosenEngine:
    require(FORMATS[name].runs, FORMATS[name].extra)
    folder = wish.run / EXPORTS / folder_name(name, wish.quantization)
    engine, decode = OPENERS[name](folder, wish)
    return ChosenEngine(folder.name, engine, decode)


def folder_name(kind: str, quantization: str) -> str:
    """Where a run keeps a model of this kind."""
    return f"{kind}-{quantization}" if kind == "ctranslate2" else kind


def _open_ctranslate2(folder: Path, wish: EngineRequest) -> tuple[Engine, DecodeConfig]:
    """Without torch, if the folder is there already."""
    from saccade.formats.ctranslate2_engine import CTranslate2Engine, why_not_search

    def check(decode: DecodeConfig) -> DecodeConfig:
        reason = why_not_search(build(decode.search, "decode.search"), wish.forced)
        if reason:
            raise Unsupported(reason)
        return decode

    deployed = _read(folder, wish)
    if deployed is None:
        check(wish.decode_settings(wish.load().recipe.decode))
        export_for_engine("ctranslate2", folder, wish)
        deployed = read_exported(folder)
    decode = check(wish.decode_settings(deployed.config.decode))
    return CTranslate2Engine(folder, deployed, lambda: wish.load().on_torch), decode


def _open_onnx(folder: Path, wish: EngineRequest) -> tuple[Engine, DecodeConfig]:
    from saccade.formats import onnx

    run = wish.load()
    if not is_up_to_date(folder, wish.run, run.checkpoint):
        export_for_engine("onnx", folder, wish)
    return onnx.open(folder), wish.decode_settings(run.recipe.decode)


OPENERS = {"ctranslate2": _open_ctranslate2, "onnx": _open_onnx}


def _read(folder: Path, wish: EngineRequest) -> ExportedModel | None:
    """What was deployed before, if it is whole and made of what the run holds now."""
    checkpoint = Checkpoints(wish.run / "checkpoints").find(wish.checkpoint)
    if not is_up_to_date(folder, wish.run, checkpoint):
        return None
    try:
        return read_exported(folder)
    except RunError as damage:
        wish.say(f"warning: {damage}; it is made anew")
        return None


def export_for_engine(kind: str, folder: Path, wish: EngineRequest) -> None:
    """Make the folder that the engine reads."""
    run = wish.load()
    try:
        export(kind, run, folder, wish.quantization, wish.say)
    except RunError as error:
        raise Unsupported(str(error)) from None
