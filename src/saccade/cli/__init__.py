"""The command line: a thin layer. torch is imported inside the commands that need it, never for help or a typo.

Data goes to stdout, all else to stderr. Exit codes: 0 done, 1 failed, 2 usage, 130 and 143 interrupted.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import cyclopts

from saccade.cli import align, evaluate, export, label, look, report, serve, train, translate
from saccade.cli.app import UsageError, app, this_command
from saccade.errors import SaccadeError

COMMANDS = (
    train,
    translate,
    align,
    label,
    evaluate,
    look,
    report,
    serve,
    export,
)  # each adds its own when it is imported


class SigtermReceived(BaseException):
    """SIGTERM, where nothing is to be saved."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SigtermReceived


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except cyclopts.CycloptsError as error:
        return _fail(f"{str(error).strip()}\ntry: saccade --help", 2)
    except UsageError as error:
        return _fail(str(error), 2)
    except SaccadeError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail(f"interrupted; to go on: {this_command()}", 130)
    except SigtermReceived:
        return _fail(f"terminated; to go on: {this_command()}", 143)
    except UnicodeEncodeError:
        return _fail("an argument is not valid UTF-8", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads: be quiet about it
        return 0
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        return _fail("out of memory; lower train.batch_tokens or decode.batch_tokens", 1)
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    finally:
        signal.signal(signal.SIGTERM, before)  # what comes while Python winds up is no news


def _fail(text: str, code: int) -> int:
    print(f"saccade: {text}", file=sys.stderr)
    return code
