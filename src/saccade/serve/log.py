"""The service's log: failures on stderr, under the number that the client was told. Texts are never logged."""

import logging
import secrets

_LOG = logging.getLogger("saccade.serve")


def new_request_id() -> str:
    """Names a request, in the answer and in the log."""
    return secrets.token_hex(8)


def log_failure(number: str, error: BaseException) -> None:
    _LOG.error("request %s failed", number, exc_info=error)
