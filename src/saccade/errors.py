"""The errors a user can cause. Their text is the whole message: what, where, why, what to type next."""


class SaccadeError(Exception):
    """A failure that the user can mend; the command line prints its text without a traceback."""


class ConfigError(SaccadeError):
    """The config names something that does not exist, or asks for the impossible."""


class DataError(SaccadeError):
    """A data file is missing, damaged or not what it says it is."""


class RunError(SaccadeError):
    """A run directory cannot be used as asked."""


class BuildError(ValueError):
    """A part cannot be built with this wiring. Each builder it passes adds its part of the config key."""

    def __init__(self, reason: str, key: tuple[str, ...] = ()):
        super().__init__(f"{'.'.join(key)}: {reason}" if key else reason)
        self.reason, self.key = reason, key
