"""The command line. Each command imports torch only when it runs, so that help and usage errors are fast.

Results go to stdout, messages and progress to stderr. Exit codes: 0 success, 1 failure, 2 invalid usage, 130 and 143
interrupted by SIGINT and SIGTERM.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import cyclopts

from saccade.cli import (
    align,
    classify,
    config,
    data,
    evaluate,
    export,
    predict,
    report,
    serve,
    tag,
    train,
    translate,
    view,
)
from saccade.cli.app import UsageError, app, this_command
from saccade.errors import SaccadeError

# Importing a module adds its commands to the app.
COMMANDS = (align, classify, config, data, evaluate, export, predict, report, serve, tag, train, translate, view)


class SigtermReceived(BaseException):
    """SIGTERM arrived in a command that has no state to save."""


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
        return _fail(f"interrupted; to run it again: {this_command()}", 130)
    except SigtermReceived:
        return _fail(f"terminated; to run it again: {this_command()}", 143)
    except UnicodeEncodeError:
        return _fail(
            "an argument or a text is not valid UTF-8, or the terminal cannot show it; set a UTF-8 locale, such as "
            "LC_ALL=C.UTF-8",
            2,
        )
    except BrokenPipeError:
        # The reader of the pipe, such as `head`, has closed it. Python must not fail when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        return _fail("out of memory; lower train.batch_tokens or decode.batch_tokens", 1)
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    finally:
        signal.signal(signal.SIGTERM, before)  # so that a SIGTERM during Python's shutdown prints no traceback


def _fail(text: str, code: int) -> int:
    print(f"saccade: {text}", file=sys.stderr)
    return code
