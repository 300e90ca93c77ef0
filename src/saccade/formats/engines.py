"""Engines behind the one contract: `auto` takes the fastest that is installed and can run the model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from saccade.config import build
from saccade.decode.engine import DecodeConfig, Engine
from saccade.errors import RunError
from saccade.formats.deployed import EXPORTS, Deployed, Subject, is_fresh, read_deployed
from saccade.formats.export import FORMATS, Unfit, export, require
from saccade.runs.marks import Checkpoints

ENGINES = ("auto", "torch", "ctranslate2", "onnx")
QUANTIZATIONS = ("float32", "int8")  # of CTranslate2
FASTEST = ("ctranslate2",)  # what `auto` tries before torch


@dataclass(frozen=True)
class Wish:
    """What an engine is wanted for. `load` opens the run with torch, which is put off as long as it can be; `settle`
    makes the decode settings of the run's own; `forced`: outputs have prefixes."""

    run: Path
    checkpoint: str
    load: Callable[[], Subject]
    settle: Callable[[DecodeConfig], DecodeConfig] = lambda decode: decode
    forced: bool = False
    quantization: str = "float32"
    say: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class Chosen:
    """An engine, and the decode settings that go with it."""

    name: str
    engine: Engine
    decode: DecodeConfig


def choose(wanted: str, wish: Wish) -> Chosen:
    """The engine of that name; for `auto` the fastest that will do, and say which."""
    if wanted == "torch":
        return _on_torch(wish)
    if wanted != "auto":
        return _deployed(wanted, wish)
    reason = ""
    for name in FASTEST:
        try:
            chosen = _deployed(name, wish)
        except Unfit as unfit:
            reason = reason or str(unfit)
        else:
            wish.say(f"engine: {chosen.name}")
            return chosen
    chosen = _on_torch(wish)
    wish.say(f"engine: torch ({reason})")
    return chosen


def _on_torch(wish: Wish) -> Chosen:
    run = wish.load()
    return Chosen("torch", run.on_torch, wish.settle(run.recipe.decode))


def _deployed(name: str, wish: Wish) -> Chosen:
    require(FORMATS[name].runs, FORMATS[name].extra)
    folder = wish.run / EXPORTS / folder_name(name, wish.quantization)
    engine, decode = OPENERS[name](folder, wish)
    return Chosen(folder.name, engine, decode)


def folder_name(kind: str, quantization: str) -> str:
    """Where a run keeps a model of this kind."""
    return f"{kind}-{quantization}" if kind == "ctranslate2" else kind


def _open_ctranslate2(folder: Path, wish: Wish) -> tuple[Engine, DecodeConfig]:
    """Without torch, if the folder is there already."""
    from saccade.formats.ctranslate2_engine import CTranslate2Engine, cannot

    def check(decode: DecodeConfig) -> DecodeConfig:
        reason = cannot(build(decode.search, "decode.search"), wish.forced)
        if reason:
            raise Unfit(reason)
        return decode

    deployed = _read(folder, wish)
    if deployed is None:
        check(wish.settle(wish.load().recipe.decode))
        deploy("ctranslate2", folder, wish)
        deployed = read_deployed(folder)
    decode = check(wish.settle(deployed.package.decode))
    return CTranslate2Engine(folder, deployed, lambda: wish.load().on_torch), decode


def _open_onnx(folder: Path, wish: Wish) -> tuple[Engine, DecodeConfig]:
    from saccade.formats import onnx

    run = wish.load()
    if not is_fresh(folder, wish.run, run.checkpoint):
        deploy("onnx", folder, wish)
    return onnx.open(folder), wish.settle(run.recipe.decode)


OPENERS = {"ctranslate2": _open_ctranslate2, "onnx": _open_onnx}


def _read(folder: Path, wish: Wish) -> Deployed | None:
    """What was deployed before, if it is whole and made of what the run holds now."""
    checkpoint = Checkpoints(wish.run / "checkpoints").find(wish.checkpoint)
    if not is_fresh(folder, wish.run, checkpoint):
        return None
    try:
        return read_deployed(folder)
    except RunError as damage:
        wish.say(f"warning: {damage}; it is made anew")
        return None


def deploy(kind: str, folder: Path, wish: Wish) -> None:
    """Make the folder that the engine reads."""
    run = wish.load()
    try:
        export(kind, run, folder, wish.quantization, wish.say)
    except RunError as error:
        raise Unfit(str(error)) from None
