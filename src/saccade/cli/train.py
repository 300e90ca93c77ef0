"""`saccade train` and `saccade demo`."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from saccade.cli.app import ConfigOverrides, Device, UsageError, app, recipe_layers, this_command
from saccade.cli.report import draw_report


@app.command
def train(
    recipe: str,
    /,
    *,
    run: str = "",
    overrides: ConfigOverrides = (),
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    allow_change: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train a recipe. Run the same command again to resume after a stop, a crash or a power failure.

    Parameters
    ----------
    recipe: str
        A recipe file, or the name of a preset.
    run: str
        The folder of the run; default: runs/NAME-OF-RECIPE.
    dry_run: bool
        Print the number of parameters, and estimate memory, time and disk space from a few updates. Nothing is written,
        except that a large text is encoded into the cache, which the training then uses.
    allow_change: bool
        When resuming: allow changes of settings that do not affect the weights trained so far, such as train.updates.
    """
    layers = recipe_layers(recipe, overrides)
    from saccade.console import program
    from saccade.recipe import resolve_recipe
    from saccade.training.dry_run import dry_run as estimate
    from saccade.training.loop import train as run_training
    from saccade.training.progress import ConsoleReporter, Silent
    from saccade.training.ranks import is_distributed, is_main_process
    from saccade.training.signals import Interrupted

    config = resolve_recipe(layers).config
    folder = Path(run or Path("runs") / Path(recipe).stem)
    report = ConsoleReporter() if is_main_process() else Silent()
    if dry_run and is_distributed():
        raise UsageError("--dry-run: works in one process only; run it without torchrun")
    if dry_run:
        print("\n".join(estimate(config, folder, report).lines()))
        return 0
    try:
        run_training(config, folder, report, allow_change=allow_change)
    except Interrupted as stopped:
        how = "the same torchrun command" if is_distributed() else this_command()
        report.say(f"saved a checkpoint at step {stopped.step:,}; resume with: {how}")
        return _exit(128 + stopped.number, is_distributed())
    if is_main_process():
        report.say(_draw(folder, config.train.device))
        command = config.built_task.command
        report.say(f"{command.capitalize()} with: {program()} {command} {shlex.quote(str(folder))} FILE")
    return _exit(0, is_distributed())


def _exit(code: int, immediately: bool) -> int:
    """Return the exit code. With `immediately`, end the process instead: at interpreter exit, a gloo thread that frees
    a tensor would abort it."""
    if immediately:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _draw(folder: Path, device: Device) -> str:
    """Write the run's report. If that fails, the training has still succeeded: return a warning."""
    try:
        return f"wrote {draw_report(folder, device=device, quick=True)}: open it in a browser"
    except Exception as error:
        return f"warning: the report could not be written: {error}"


@app.command
def demo(
    *,
    from_: Annotated[str, Parameter(name="--from")] = "en",
    to: str = "de",
    run: str = "",
) -> int:
    """Train a translator of dates from scratch in about a minute, and show its attention.

    Parameters
    ----------
    from_: str
        The source language, such as en, fr or es.
    to: str
        The target language.
    run: str
        The folder of the run; default: runs/demo for en to de, else runs/demo-FROM-TO.
    """
    from saccade.demo import demo as show_demo
    from saccade.training.signals import Interrupted

    try:
        show_demo(from_, to, run)
    except Interrupted as stopped:
        print(f"saved a checkpoint at step {stopped.step:,}; resume with: {this_command()}", file=sys.stderr)
        return 128 + stopped.number
    return 0
