"""The cyclopts application: its name and help, the option types that several commands share, and early checks."""

import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter

import saccade
from saccade.errors import ConfigError, SaccadeError

HELP = """Train, inspect, compare and deploy attention-based sequence models.

saccade demo                         train a small demo and show its attention

saccade train recipe.toml            train a recipe; run again to resume

saccade translate runs/recipe FILE   translate a file (see also tag, classify, predict)

saccade serve runs/recipe            serve a web page and an HTTP API
"""


class UsageError(SaccadeError):
    """The command line is invalid: a file is missing, or options exclude each other. The exit code is 2."""


def version() -> str:
    torch = next((d.version for d in metadata.distributions(name="torch")), "not installed")
    return f"saccade {saccade.__version__} (torch {torch}, Python {sys.version.split()[0]})"


def _shown_default(value: Any) -> str | None:
    """How a default is printed in the help; None hides one that means "not given"."""
    return None if value is None or value is False or value in ("", ()) else str(value)


app = cyclopts.App(
    name="saccade",
    help=HELP,
    help_format="plaintext",
    version=version,
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(show_default=_shown_default),
)

ConfigOverrides = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative="", help="Override a config value: KEY=VALUE. May be repeated."),
]
Checkpoint = Annotated[
    str,
    Parameter(help="average, best, latest or step-N; auto takes the first of average, best and latest that exists."),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"],
    Parameter(help="The device of the torch engine; auto takes cuda, mps or cpu, the first that this machine has."),
]
EngineName = Literal["auto", "torch", "ctranslate2", "onnx"]
Quantization = Literal["float32", "int8"]
InputFile = Annotated[str, Parameter(allow_leading_hyphen=True)]  # `-` is stdin
OutputFile = Annotated[str, Parameter(name=("--output", "-o"), allow_leading_hyphen=True)]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]


# ── checks that run before torch is imported ──


def must_exist(*names: str) -> None:
    """Raise a UsageError for the first name that is not a file. "" and "-" are skipped."""
    for name in names:
        if name in ("", "-"):
            continue
        if Path(name).is_dir():
            raise UsageError(f"{name}: is a folder; give a file")
        if not Path(name).exists():
            raise UsageError(f"{name}: no such file; check the path")


def must_differ(file: str, output: str) -> None:
    """Raise a UsageError if a command would overwrite its own input."""
    if "-" not in (file, output) and Path(output).exists() and Path(output).samefile(file):
        raise UsageError(f"{output}: is the input file; choose another output file")


def must_have_folder(*outputs: str) -> None:
    """Raise a UsageError for the first output file whose folder does not exist. "" and "-" are skipped."""
    for output in outputs:
        if output not in ("", "-") and not (folder := Path(output).parent).is_dir():
            raise UsageError(f"{output}: the folder {folder} does not exist; create it, or choose another output file")


def must_be_run(name: str) -> None:
    """Raise a UsageError if a folder is not a run. The message lists the runs in the same parent folder."""
    path = Path(name)
    if not (path / "config.toml").is_file():
        runs = sorted(p.parent.name for p in path.parent.glob("*/config.toml")) if path.parent.is_dir() else []
        available = f" (available in {path.parent}: {', '.join(runs)})" if runs else ""
        raise UsageError(
            f"{name}: is not a run: it has no config.toml{available}; train one with {_program()} train RECIPE"
        )


def recipe_layers(name: str, overrides: Sequence[str]) -> list[Any]:
    """The config layers of a recipe file or preset and of the `--set` options. A recipe that is missing or is not valid
    TOML is a UsageError."""
    from saccade.config_files import file_layers, flag_layer

    try:
        return [*file_layers(name), *map(flag_layer, overrides)]
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _program() -> str:
    from saccade.console import program

    return program()


def this_command() -> str:
    """The command line of this process, quoted for a shell. For `train` and `demo`, running it again resumes."""
    return " ".join([_program(), *map(shlex.quote, sys.argv[1:])])
