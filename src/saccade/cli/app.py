"""The program itself: its name, its help, what its commands share."""

import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import cyclopts
from cyclopts import Parameter

import saccade
from saccade.errors import ConfigError, SaccadeError

HELP = """Train, see, compare and ship sequence models built on attention.

saccade demo                         train on generated dates, see the attention

saccade train recipe.toml            train your own; the same command goes on

saccade translate runs/recipe FILE   one line in, one line out; so do tag and classify

saccade serve runs/recipe            a page and an API to translate with
"""


class UsageError(SaccadeError):
    """The command line asks for something that is not there or does not go together."""


def version() -> str:
    torch = next((d.version for d in metadata.distributions(name="torch")), "not installed")
    return f"saccade {saccade.__version__} (torch {torch}, Python {sys.version.split()[0]})"


app = cyclopts.App(
    name="saccade", help=HELP, help_format="plaintext", version=version, suppress_keyboard_interrupt=False
)
data = cyclopts.App(name="data", help="Look at the text of a recipe before training.")
config = cyclopts.App(name="config", help="Look at the config of a recipe.")
app.command(data)
app.command(config)

Sets = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative="", help="Change one value: KEY=VALUE. May be repeated."),
]
Checkpoint = Annotated[str, Parameter(help="auto, average, best, latest or step-N.")]
EngineName = Literal["auto", "torch", "ctranslate2", "onnx"]
Quantization = Literal["float32", "int8"]
File = Parameter(allow_leading_hyphen=True)  # `-` is stdin or stdout
Json = Annotated[bool, Parameter(name="--json", negative="", help="Write JSON.")]


# ── what can be refused before anything heavy is imported ──


def must_exist(*names: str) -> None:
    for name in names:
        if name not in ("", "-") and (not Path(name).exists() or Path(name).is_dir()):
            raise UsageError(f"{name}: there is no such file")


def must_be_run(name: str) -> None:
    path = Path(name)
    if not (path / "config.toml").is_file():
        beside = sorted(p.parent.name for p in path.parent.glob("*/config.toml")) if path.parent.is_dir() else []
        known = f" (runs beside it: {', '.join(beside)})" if beside else ""
        raise UsageError(f"{name}: is not a run: it has no config.toml{known}; make one with {_program()} train RECIPE")


def must_be_recipe(name: str, sets: Sequence[str]) -> None:
    from saccade.config import file_layers, flag_layer

    try:
        file_layers(name)
        for text in sets:
            flag_layer(text)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _program() -> str:
    from saccade.console import program

    return program()


def this_command() -> str:
    """What to type to go on."""
    return " ".join([_program(), *map(shlex.quote, sys.argv[1:])])
