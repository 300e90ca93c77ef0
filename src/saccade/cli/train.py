"""`saccade train` and `saccade demo`."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from saccade.cli.app import Sets, UsageError, app, must_be_recipe, this_command
from saccade.cli.report import draw_report


@app.command
def train(
    recipe: str,
    /,
    *,
    run: str = "",
    sets: Sets = (),
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    allow_change: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train a recipe. The same command goes on after a stop, a crash or a power cut.

    Parameters
    ----------
    recipe: str
        A recipe's file.
    run: str
        The run's folder; runs/NAME-OF-RECIPE if left out.
    dry_run: bool
        Take a few real steps and tell parameters, memory, time and disk; write nothing.
    allow_change: bool
        Let harmless settings of an existing run change, such as train.updates.
    """
    must_be_recipe(recipe, sets)
    from saccade.console import program
    from saccade.recipe import read_recipe, task_of
    from saccade.training.dry_run import dry_run as try_out
    from saccade.training.loop import train as run_training
    from saccade.training.progress import ConsoleReporter, Silent
    from saccade.training.ranks import is_distributed, is_main_process
    from saccade.training.signals import Interrupted

    recipe_ = read_recipe(recipe, sets).config
    folder = Path(run or Path("runs") / Path(recipe).stem)
    report = ConsoleReporter() if is_main_process() else Silent()
    if dry_run and is_distributed():
        raise UsageError("--dry-run: looks at one process; run it without torchrun")
    if dry_run:
        print("\n".join(try_out(recipe_, folder, report).lines()))
        return 0
    try:
        run_training(recipe_, folder, report, allow_change=allow_change)
    except Interrupted as stopped:
        how = "the same torchrun command" if is_distributed() else this_command()
        report.say(f"Saved step {stopped.step:,}. Continue with: {how}")
        return _end(128 + stopped.number, is_distributed())
    if is_main_process():
        report.say(_draw(folder))
        command = task_of(recipe_).command
        report.say(f"{command.capitalize()} with: {program()} {command} {shlex.quote(str(folder))} FILE")
    return _end(0, is_distributed())


def _end(code: int, at_once: bool) -> int:
    """One of several ranks leaves at once: a thread of gloo that frees a tensor while Python ends would abort it."""
    if at_once:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _draw(folder: Path) -> str:
    """Draw the run's report and say so. A training that went well does not fail for want of it."""
    try:
        return f"wrote {draw_report(folder, quick=True)}: open it in a browser"
    except Exception as error:
        return f"warning: the report is not drawn: {error}"


@app.command
def demo(
    *,
    from_: Annotated[str, Parameter(name="--from")] = "en",
    to: str = "de",
    run: str = "",
) -> int:
    """Train a translator of dates from nothing in about a minute, then show its attention.

    Parameters
    ----------
    from_: str
        The language to read, such as en, fr or es.
    to: str
        The language to write.
    run: str
        The run's folder; runs/demo (or runs/demo-FROM-TO) if left out.
    """
    from saccade.demo import demo as show_demo
    from saccade.training.signals import Interrupted

    try:
        show_demo(from_, to, run)
    except Interrupted as stopped:
        print(f"Saved step {stopped.step:,}. Continue with: {this_command()}", file=sys.stderr)
        return 128 + stopped.number
    return 0
