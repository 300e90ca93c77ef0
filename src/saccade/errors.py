"""The errors that a user can cause. Their text is the whole message: where, what is wrong, and what to do."""


class SaccadeError(Exception):
    """An error that the user can fix; the command line prints its text without a traceback."""


class ConfigError(SaccadeError):
    """The config has an unknown name, a wrong value or a combination that cannot work."""


class DataError(SaccadeError):
    """A data file is missing, damaged or in another format than expected."""


class RunError(SaccadeError):
    """A run folder cannot be used as requested."""


class BuildError(ValueError):
    """A part cannot be built with these options and this wiring. Each enclosing `build` prepends its config key."""

    def __init__(self, reason: str, key: tuple[str, ...] = ()):
        super().__init__(f"{'.'.join(key)}: {reason}" if key else reason)
        self.reason, self.key = reason, key
