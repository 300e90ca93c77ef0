"""The errors that a user can cause. Their text is the whole message: where, what is wrong, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager


def plural(count: int, noun: str) -> str:
    """The count and its noun, for messages: "1 line", "1,200 lines"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class SaccadeError(Exception):
    """An error that the user can fix; the command line prints its text without a traceback."""


class ConfigError(SaccadeError):
    """The config has an unknown name, a wrong value or a combination that cannot work."""


class DataError(SaccadeError):
    """A data file is missing, damaged or in another format than expected."""


class RunError(SaccadeError):
    """A run folder cannot be used as requested."""


class WriteError(RunError):
    """A file or folder cannot be written."""


@contextmanager
def remedy(advice: str, problem: type[RunError] = RunError) -> Iterator[None]:
    """Append what to do to the text of a RunError (or only of this kind of it) that is raised inside the `with` block:
    the code that finds a damaged file does not know what the file is for."""
    try:
        yield
    except problem as error:
        raise RunError(f"{error}; {advice}") from None


NON_FINITE_OUTPUT = (
    "the model's output is NaN or infinite: training diverged or the checkpoint is damaged; "
    "use another checkpoint, or train again with a lower train.schedule.rate"
)


class BuildError(ValueError):
    """A part cannot be built with these options and this wiring. Each enclosing `build` prepends its config key."""

    def __init__(self, reason: str, key: tuple[str, ...] = ()):
        super().__init__(f"{'.'.join(key)}: {reason}" if key else reason)
        self.reason, self.key = reason, key
